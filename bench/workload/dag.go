package workload

import (
	"context"
	"encoding/json"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// dag is a run of a graph of ten function nodes: one, then eight, then one.
var dag = &Workload{Letter: "H", Name: "dag", Unit: "graphs", Title: "a graph of 10 function nodes: one, eight in parallel, one",
	register: []durable.Registration{sourceFunction, sumFunction}, run: runDAG}

const middleNodes = 8

var sourceFunction = durable.NewFunction("bench-source", func(_ durable.Context, in order) (int64, error) { return in.Number, nil })

// sumFunction adds up its inputs and one.
var sumFunction = durable.NewFunction("bench-sum", func(_ durable.Context, in map[string]int64) (int64, error) {
	sum := int64(1)
	for _, n := range in { //lint:sorted a sum has no order
		sum += n
	}
	return sum, nil
})

func buildDAG() (*perdurev1.Graph, error) {
	g := durable.NewGraph("bench-dag")
	source := g.Function("source", sourceFunction, durable.Input("number", durable.RunInput("number")), durable.Input("text", durable.RunInput("text")))
	var middle []*durable.Node
	var inputs []durable.NodeOption
	for i := range middleNodes {
		n := g.Function(fmt.Sprintf("middle-%d", i), sumFunction, durable.Input("n", durable.From(source)))
		middle = append(middle, n)
		inputs = append(inputs, durable.Input(fmt.Sprintf("n%d", i), durable.From(n)))
	}
	sink := g.Function("sink", sumFunction, inputs...)
	g.Add(durable.Path(source, durable.Nodes(middle...), sink))
	return g.Build()
}

func runDAG(ctx context.Context, e *env) (*Result, error) {
	graph, err := buildDAG()
	if err != nil {
		return nil, err
	}
	return e.executions(ctx, func(ctx context.Context, n int64) error {
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
		return unequal(id, got["sink"], middleNodes*(n+1)+1)
	})
}
