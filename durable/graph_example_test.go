package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"perdure/client"
	"perdure/durable"
)

// Lines is what the node "parse" takes: a member for each of its inputs.
type Lines struct {
	File string `json:"file"`
	Max  int    `json:"max"`
}

var parse = durable.NewFunction("parse", func(_ durable.Context, in Lines) (map[string]int, error) {
	if in.File == "" {
		return nil, durable.Skip("no file was given")
	}
	return map[string]int{"lines": in.Max}, nil
})

var send = durable.NewFunction("send", func(_ durable.Context, in struct {
	Lines int            `json:"lines"`
	Rates map[string]any `json:"rates"`
	Note  string         `json:"note"`
}) (string, error) {
	return fmt.Sprintf("sent %d lines, %s", in.Lines, in.Note), nil
})

// A graph that is built in Go and run by the cluster.
func ExampleGraph() {
	g := durable.NewGraph("report", durable.MaxParallel(8))
	p := g.Function("parse", parse,
		durable.Input("file", durable.RunInput("file")), durable.Input("max", durable.Literal(100)),
		durable.Output(durable.JSONObject), durable.NodeRetry(durable.RetryPolicy{MaxAttempts: 3}))
	rates := g.HTTP("rates", durable.HTTPCall{URL: "https://rates.example/today"}, durable.NodeTimeout(10*time.Second), durable.SkipOnFailure())
	approve := g.Signal("approve", "approved", durable.NodeTimeout(48*time.Hour))
	s := g.Function("send", send,
		durable.Input("lines", durable.From(p, "lines").As(durable.JSONNumber)), durable.Input("rates", durable.From(rates)),
		durable.Input("note", durable.From(approve, "note")))
	g.Add(durable.Path(durable.Overlay(p, rates), approve, s))

	ctx := context.Background()
	c, err := client.Dial(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	run, err := g.Submit(ctx, c, "report-7", map[string]string{"file": "in.csv"})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Signal(ctx, run.ID(), "approved", []byte(`{"note": "well done"}`)); err != nil {
		log.Fatal(err)
	}
	if err := run.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	lines, err := durable.Outcome[map[string]int](ctx, run, p.ID())
	if errors.Is(err, durable.ErrSkipped) {
		fmt.Println("there was nothing to send")
	}
	fmt.Println(lines, err)
}
