package main

import (
	"bytes"
	"io"

	"github.com/spf13/cobra"

	"perdure/graph/draw"
)

func (a *app) graphDotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dot ID|FILE",
		Short: "Draw a graph for Graphviz",
		Example: `  perdure graph dot report-7 | dot -Tpng > report.png
  perdure graph dot report.yaml`,
		Args: exactly("ID or FILE"),
	}
	cmd.RunE = a.graphOf(addRun(cmd), func(d drawn) error { return a.draw(d, dot) })
	return cmd
}

func (a *app) graphSVGCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "svg ID|FILE",
		Short: "Draw a graph as SVG",
		Long: `Draw a graph as SVG, which browsers show. The picture of a run shows each node's
state in colour and words.`,
		Example: `  perdure graph svg report-7 > report.svg
  perdure graph svg report.yaml > report.svg`,
		Args: exactly("ID or FILE"),
	}
	cmd.RunE = a.graphOf(addRun(cmd), func(d drawn) error { return a.draw(d, svg) })
	return cmd
}

// draw writes a drawing as it is, with --json too: it is no message.
func (a *app) draw(d drawn, how func(drawn) []byte) error {
	_, err := io.Copy(a.out, bytes.NewReader(how(d)))
	return err
}

// state is the state of each node as drawings have it; nil for a file.
func (d drawn) state() func(node string) string {
	if d.status == nil {
		return nil
	}
	states := make(map[string]string, len(d.status.GetNodes()))
	for _, n := range d.status.GetNodes() {
		states[n.GetId()] = nodeStatusText(n.GetStatus())
	}
	return func(node string) string { return states[node] }
}

func dot(d drawn) []byte { return []byte(draw.DOT(d.graph, d.state())) }

func svg(d drawn) []byte {
	var o draw.Options
	if d.status != nil {
		o.Title = titleOf(d.status) + ": " + phaseText(d.status)
	}
	return draw.SVG(d.graph, d.state(), o)
}
