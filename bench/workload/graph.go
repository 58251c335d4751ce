package workload

import (
	"context"
	"encoding/json"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// largeGraph is a run of the largest graph that is allowed.
var largeGraph = &Workload{Letter: "H2", Name: "graph", Unit: "nodes", Units: graphLayers * graphWidth,
	Title: "a graph of 10,000 function nodes in layers of 100, each node after 10 of the layer before",
	Large: true, register: []durable.Registration{sourceFunction, sumFunction}, run: runLargeGraph}

const graphLayers, graphWidth, graphBefore = 100, 100, 10

func buildLargeGraph() (*perdurev1.Graph, error) {
	g := durable.NewGraph("bench-graph")
	var former []*durable.Node
	for layer := range graphLayers {
		var nodes []*durable.Node
		for i := range graphWidth {
			id := fmt.Sprintf("node-%d-%d", layer, i)
			if layer == 0 {
				nodes = append(nodes, g.Function(id, sourceFunction, durable.Input("number", durable.RunInput("number")), durable.Input("text", durable.RunInput("text"))))
				continue
			}
			n := g.Function(id, sumFunction, durable.Input("n", durable.From(former[i])))
			for k := range graphBefore {
				g.Add(durable.Path(former[(i+k)%graphWidth], n))
			}
			nodes = append(nodes, n)
		}
		former = nodes
	}
	return g.Build()
}

func runLargeGraph(ctx context.Context, e *env) (*Result, error) {
	graph, err := buildLargeGraph()
	if err != nil {
		return nil, err
	}
	return e.measure(ctx, func(ctx context.Context, n int64) error {
		input, err := json.Marshal(order{n, e.text})
		if err != nil {
			return err
		}
		c, id := e.client(n), e.id(n)
		if _, err := c.SubmitGraph(ctx, client.SubmitGraphOptions{ID: id, Graph: graph, Input: input}); err != nil {
			return err
		}
		out, err := durable.AttachGraph(c, id).Result(ctx)
		if err != nil {
			return err
		}
		var got map[string]int64
		if err := json.Unmarshal(out, &got); err != nil {
			return err
		}
		if len(got) != graphWidth {
			return fmt.Errorf("%s returned %d outputs, not %d", id, len(got), graphWidth)
		}
		for i := range graphWidth {
			if err := unequal(id, got[fmt.Sprintf("node-%d-%d", graphLayers-1, i)], n+graphLayers-1); err != nil {
				return err
			}
		}
		return nil
	})
}
