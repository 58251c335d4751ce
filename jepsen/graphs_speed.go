package jepsen

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// GraphSpeedOptions say which graphs are measured. The zero value is one of 1,000 nodes.
type GraphSpeedOptions struct {
	// Nodes are the sizes of the graphs, measured one after the other. Width is the size of a layer; default
	// 100. A node comes after two of the layer before it.
	Nodes []int
	Width int
	// Workers are processes, each up to 64 functions at once; default 2.
	Workers int
	Out     io.Writer
}

// GraphSpeedReport is how fast nodes were completed.
type GraphSpeedReport struct {
	Graphs     []GraphPace
	Violations []string
}

// GraphPace is one graph's.
type GraphPace struct {
	Nodes, Width int
	// Submit is how long its submission took, Took from then until a client got its end.
	Submit, Took time.Duration
	// Rates are nodes completed per second in each tenth of the nodes, Rate in all.
	Rates []float64
	Rate  float64
}

// GraphSpeed runs layered graphs of functions that do nothing, and reads from the times at which their nodes
// ended how many there were per second. An error means that it could not be measured. The program has to
// call BeWorker.
func GraphSpeed(ctx context.Context, c *Cluster, o GraphSpeedOptions) (*GraphSpeedReport, error) {
	o.Width, o.Workers = fallback(o.Width, 100), fallback(o.Workers, 2)
	if len(o.Nodes) == 0 {
		o.Nodes = []int{1000}
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if missing := o.Workers - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, 10*time.Second); err != nil {
			return nil, err
		}
	}
	cl, err := c.Client(5 * time.Minute)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	report := &GraphSpeedReport{}
	for i, n := range o.Nodes {
		fmt.Fprintf(o.Out, "%d nodes in layers of %d\n", n, o.Width)
		p, wrong, err := pace(ctx, cl, fmt.Sprintf("speed-%d-%d", i, n), n, o.Width)
		if err != nil {
			return report, err
		}
		report.Graphs, report.Violations = append(report.Graphs, p), append(report.Violations, wrong...)
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// Layers is a script of n functions that do nothing, in layers of a width; each comes after two of the layer
// before it, and looks at their outputs.
func Layers(n, width int) *GraphScript {
	s := &GraphScript{Graph: &perdurev1.Graph{Name: "layers"}, Plans: map[string]NodePlan{}}
	name := func(i int) string { return fmt.Sprintf("n%05d", i) }
	for i := range n {
		p := NodePlan{Node: name(i), End: EndSucceed}
		encoded, err := json.Marshal(p)
		if err != nil {
			panic(err) // strings and numbers
		}
		node := &perdurev1.GraphNode{Id: p.Node,
			Inputs: []*perdurev1.NodeInput{{Name: planInput, Source: &perdurev1.NodeInput_Value{Value: encoded}}},
			Kind:   &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: graphFunctionName}}}
		if layer := i / width; layer > 0 {
			for j, column := range slices.Compact([]int{i % width, (i + 1) % width}) {
				before := name((layer-1)*width + column)
				node.After = append(node.After, before)
				node.Inputs = append(node.Inputs, &perdurev1.NodeInput{Name: fmt.Sprintf("in%d", j), Source: &perdurev1.NodeInput_Node{Node: before}})
			}
		}
		s.Plans[p.Node] = p
		s.Graph.Nodes = append(s.Graph.Nodes, node)
	}
	return s
}

// pace measures one graph, and compares its end with its script.
func pace(ctx context.Context, cl *client.Client, id string, n, width int) (p GraphPace, wrong []string, err error) {
	script := Layers(n, width)
	p = GraphPace{Nodes: n, Width: width}
	began := time.Now()
	if _, err := cl.SubmitGraph(ctx, client.SubmitGraphOptions{ID: id, Graph: script.Graph}); err != nil {
		return p, nil, err
	}
	p.Submit = time.Since(began)
	began = time.Now()
	if _, err := cl.Result(ctx, id); err != nil {
		return p, nil, err
	}
	p.Took = time.Since(began)
	status, err := cl.GraphStatus(ctx, id)
	if err != nil {
		return p, nil, err
	}
	expect, _ := script.Expect()
	var ends []int64
	for _, node := range status.GetNodes() {
		if e := expect[node.GetId()]; node.GetStatus() != e.Status || node.GetAttempt() != e.Attempt {
			wrong = append(wrong, fmt.Sprintf("%s: node %s is %s at attempt %d", id, node.GetId(), nodeWord(node.GetStatus()), node.GetAttempt()))
		}
		ends = append(ends, node.GetEndedMs())
	}
	p.Rate, p.Rates = paces(status.GetCreatedMs(), ends)
	return p, wrong, nil
}

// paces are the rates over all ends, and over each tenth of them: of n ends the first n/10, and so on. Times
// are in milliseconds.
func paces(began int64, ends []int64) (all float64, tenths []float64) {
	slices.Sort(ends)
	rate := func(n int, from, to int64) float64 { return float64(n) * 1000 / float64(max(to-from, 1)) }
	from, done := began, 0
	for i := 1; i <= 10; i++ {
		upTo := len(ends) * i / 10
		if upTo == done {
			continue
		}
		tenths = append(tenths, rate(upTo-done, from, ends[upTo-1]))
		from, done = ends[upTo-1], upTo
	}
	return rate(len(ends), began, from), tenths
}

// String is a line for each graph.
func (r *GraphSpeedReport) String() string {
	var b strings.Builder
	for _, p := range r.Graphs {
		fmt.Fprintf(&b, "%6d nodes in layers of %d: submitted in %s, done in %s, %.0f nodes/s; by tenths", p.Nodes, p.Width, short3(p.Submit), short3(p.Took), p.Rate)
		for _, rate := range p.Rates {
			fmt.Fprintf(&b, " %.0f", rate)
		}
		b.WriteString("\n")
	}
	return b.String()
}
