package jepsen

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	perdurev1 "perdure/api/perdure/v1"
)

// DrawGraph draws a script of 1 to most nodes (subgraphs not counted). The same seed and number draw the
// same script; wave is not drawn, so that a script can be run both ways.
func DrawGraph(seed, number uint64, most int, wave bool) *GraphScript {
	d := drawer{rng: rand.New(rand.NewPCG(seed, number))}
	n := 1 + d.rng.IntN(min(most, 40))
	if d.chance(15) {
		n = 1 + d.rng.IntN(most) // a few are large
	}
	// Most scripts fail rarely: a single failure takes all that comes after it along.
	d.failing = []int{0, 1, 8}[d.rng.IntN(3)]
	s := d.script(n, true)
	s.Graph.Name, s.Graph.Wave = fmt.Sprintf("drawn %d", number), wave
	if d.chance(20) {
		s.Graph.MaxParallel = uint32(1 + d.rng.IntN(8))
	}
	return s
}

type drawer struct {
	rng     *rand.Rand
	failing int // percent
}

func (d *drawer) chance(percent int) bool { return d.rng.IntN(100) < percent }

// script draws a graph of n nodes; only the outermost waits for signals and has subgraphs.
func (d *drawer) script(n int, outermost bool) *GraphScript {
	s := &GraphScript{Graph: &perdurev1.Graph{}, Plans: map[string]NodePlan{}, Subs: map[string]*GraphScript{}}
	before := d.shape(n)
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	for i := range n {
		node := &perdurev1.GraphNode{Id: name(i)}
		for _, p := range before[i] {
			node.After = append(node.After, name(p))
		}
		if d.chance(25) {
			node.OnFailure = perdurev1.OnFailure_ON_FAILURE_SKIP
		}
		d.kind(s, node, outermost)
		s.Graph.Nodes = append(s.Graph.Nodes, node)
	}
	return s
}

// shape draws the nodes before each node, all with lower numbers.
func (d *drawer) shape(n int) [][]int {
	before := make([][]int, n)
	add := func(i int, ps ...int) {
		for _, p := range ps {
			if p >= 0 && !slices.Contains(before[i], p) {
				before[i] = append(before[i], p)
			}
		}
	}
	switch d.rng.IntN(5) {
	case 0: // a chain of diamonds: a, (b, c), d
		for i := 1; i < n; i++ {
			switch i % 3 {
			case 0:
				add(i, i-2, i-1)
			case 1:
				add(i, i-1)
			case 2:
				add(i, i-2)
			}
		}
	case 1: // a star, and what gathers its rays
		for i := 1; i < n; i++ {
			add(i, 0)
		}
		if n > 3 {
			before[n-1] = nil
			for i := 1; i < n-1; i++ {
				add(n-1, i)
			}
		}
	case 2: // full layers
		w := 2 + d.rng.IntN(5)
		for i := w; i < n; i++ {
			for p := (i/w - 1) * w; p < i/w*w; p++ {
				add(i, p)
			}
		}
	case 3: // layers with few edges
		w := 1 + d.rng.IntN(20)
		for i := w; i < n; i++ {
			for range 1 + d.rng.IntN(3) {
				add(i, (i/w-1)*w+d.rng.IntN(w))
			}
			if d.chance(20) {
				add(i, d.rng.IntN(i))
			}
		}
	default: // anything
		for i := 1; i < n; i++ {
			for range d.rng.IntN(4) {
				add(i, d.rng.IntN(i))
			}
		}
	}
	return before
}

// mostInputs is how many of the nodes before it a function looks at.
const mostInputs = 4

func (d *drawer) kind(s *GraphScript, n *perdurev1.GraphNode, outermost bool) {
	roll := d.rng.IntN(100)
	switch {
	case roll < 5:
		n.Kind = &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: int64(1 + d.rng.IntN(200))}}
	case roll < 9 && outermost:
		n.Kind = &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: d.signal(s)}}
		if d.chance(5 + d.failing) {
			n.GetSignal().Name, n.TimeoutMs = "never", int64(100+d.rng.IntN(900))
		}
	case roll < 11 && outermost:
		sub := d.script(1+d.rng.IntN(8), false)
		s.Subs[n.Id] = sub
		n.Kind = &perdurev1.GraphNode_Subgraph{Subgraph: sub.Graph}
		d.retry(n, uint32(1+d.rng.IntN(2)))
	default:
		n.Kind = &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: graphFunctionName}}
		p := d.plan(s, n, outermost)
		s.Plans[n.Id] = p
		encoded, err := json.Marshal(p)
		if err != nil {
			panic(err) // strings and numbers
		}
		n.Inputs = append(n.Inputs, &perdurev1.NodeInput{Name: planInput, Source: &perdurev1.NodeInput_Value{Value: encoded}})
		for i, p := range n.After[:min(len(n.After), mostInputs)] {
			n.Inputs = append(n.Inputs, &perdurev1.NodeInput{Name: fmt.Sprintf("in%d", i), Source: &perdurev1.NodeInput_Node{Node: p}})
		}
	}
}

// signal draws one of a few names, so that nodes share some.
func (d *drawer) signal(s *GraphScript) string {
	name := fmt.Sprintf("go-%d", d.rng.IntN(4))
	if !slices.Contains(s.Signals, name) {
		s.Signals = append(s.Signals, name)
	}
	return name
}

func (d *drawer) retry(n *perdurev1.GraphNode, attempts uint32) {
	n.Retry = &perdurev1.NodeRetry{Attempts: attempts, InitialMs: int64(1 + d.rng.IntN(100)), MaxMs: 200}
}

// plan draws what a function does, and gives its node the attempts and the time for it.
func (d *drawer) plan(s *GraphScript, n *perdurev1.GraphNode, outermost bool) NodePlan {
	p := NodePlan{Node: n.Id, End: EndSucceed}
	if d.chance(12) {
		p.Fails = uint32(1 + d.rng.IntN(2))
		d.retry(n, p.Fails+1+uint32(d.rng.IntN(2)))
	}
	switch roll := d.rng.IntN(100); {
	case roll < d.failing:
		p.End = []NodeEnd{EndFail, EndRefuse, EndHang}[d.rng.IntN(3)]
		if p.End == EndHang {
			n.TimeoutMs = int64(100 + d.rng.IntN(500))
			d.retry(n, uint32(1+d.rng.IntN(2)))
		}
	case roll < d.failing+6:
		p.End = EndSkip
	case roll < d.failing+10 && outermost:
		p.End, p.Signal = EndSuspend, d.signal(s)
	}
	switch roll := d.rng.IntN(100); {
	case roll < 5:
		p.Ms = int64(200 + d.rng.IntN(1300)) // slow
	case roll < 30:
		p.Ms = int64(1 + d.rng.IntN(50))
	}
	p.Step = p.Ms > 0 && d.chance(50)
	return p
}
