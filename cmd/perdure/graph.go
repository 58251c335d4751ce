package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/graph/source"
)

func (a *app) graphCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "graph",
		Short: "Submit, watch, retry and draw graphs",
		Long: `Submit, watch, retry and draw graphs: DAGs of functions, HTTP calls, signals and
sleeps, written in YAML or JSON. The cluster starts each node when those before it
have ended; workers run the functions. A file looks like this:

  name: report
  nodes:
    parse:
      function: parse              # a durable function that some worker has registered
      inputs: {file: {run: file}}  # member "file" of the run's input
      retry: {attempts: 3, initial: 1s}
    rates:
      http: {url: "https://rates.example/today"}
      onFailure: skip              # nodes after it run with null
    approve:
      signal: approved             # perdure signal ID approved
      after: [parse, rates]
      timeout: 48h
    send:
      function: send
      after: [approve]
      inputs: {report: {node: parse}, rates: {node: rates}, urgent: true}

A run is an execution: perdure result, signal, cancel, terminate, describe and
journal take its id.

An argument ID|FILE that names an existing file is that file; --run makes it an id.
FILE - is standard input.`,
		Example: `  perdure graph submit report.yaml --id report-7 --watch
  perdure graph status report-7
  perdure graph retry report-7
  perdure graph svg report-7 > report.svg`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.graphSubmitCommand(), a.graphStatusCommand(), a.graphWatchCommand(), a.graphOutcomeCommand(), a.graphRetryCommand(),
		a.graphShowCommand(), a.graphDotCommand(), a.graphSVGCommand(), a.graphValidateCommand())
	return cmd
}

// readGraph reads and checks a graph file; its error names file and line of each problem.
func (a *app) readGraph(name string) (*perdurev1.Graph, error) {
	var content []byte
	var err error
	if name == "-" {
		name = "stdin"
		content, err = readGraphFrom(a.stdin)
	} else {
		var f *os.File
		if f, err = os.Open(name); err == nil {
			content, err = readGraphFrom(f)
			err = errors.Join(err, f.Close())
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noFileError(name)
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if err != nil {
		return nil, usagef("%s: %v", printable(name), err)
	}
	g, err := source.Parse(name, content)
	var invalid *source.Error
	if errors.As(err, &invalid) {
		return nil, &hintedError{usagef("%v", invalid), "perdure graph --help shows an example of a file"}
	}
	return g, err
}

// noFileError names the folder in which a file was not found.
func noFileError(name string) error {
	whole, err := filepath.Abs(name)
	if err != nil {
		return usagef("%s: no such file", printable(name))
	}
	folder, file := filepath.Split(whole)
	return &usageError{message: fmt.Sprintf("there is no file %s in %s", printable(file), printable(filepath.Clean(folder))), plain: true}
}

// readGraphFrom reads one byte more than a file may have, so that a larger file shows without being read.
func readGraphFrom(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, source.MaxFileBytes+1))
}

// drawn is a graph to show, with the status of its run, if it is of a run.
type drawn struct {
	graph  *perdurev1.Graph
	status *perdurev1.GraphStatus
}

// graphOf makes the function of a command about ID|FILE. It asks a node only for an ID.
func (a *app) graphOf(isRun *bool, show func(d drawn) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if !*isRun && namesFile(args[0]) {
			return do(func(context.Context, []string) error {
				g, err := a.readGraph(args[0])
				if err != nil {
					return err
				}
				return show(drawn{graph: g})
			})(cmd, args)
		}
		return a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := c.GetGraph(ctx, args[0])
			if err != nil {
				return err
			}
			s, err := c.GraphStatus(ctx, args[0])
			if err != nil {
				return err
			}
			return show(drawn{r.GetGraph(), s})
		})(cmd, args)
	}
}

// addRun gives a command about ID|FILE the flag that makes the argument an ID.
func addRun(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("run", false, "treat the argument as a run id, even if a file has its name")
}

func namesFile(arg string) bool {
	if arg == "-" {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && !info.IsDir()
}

func (a *app) graphShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID|FILE",
		Short: "Print the graph of a run or file as YAML",
		Example: `  perdure graph show report-7 > report.yaml
  perdure graph show report.json`,
		Args: exactly("ID or FILE"),
	}
	cmd.RunE = a.graphOf(addRun(cmd), func(d drawn) error {
		if a.json {
			return a.printJSON(messageObject(d.graph.ProtoReflect()))
		}
		_, err := a.out.Write(source.Format(d.graph))
		return err
	})
	return cmd
}

func (a *app) graphValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a graph file without a cluster",
		Long: `Check a graph file as submit does, without a cluster. Problems are listed with file
and line.

Exit codes: 0 the file is valid, 2 it is not.`,
		Example: `  perdure graph validate report.yaml
  generate-graph | perdure graph validate -`,
		Args: exactly("FILE"),
		RunE: do(func(_ context.Context, args []string) error {
			g, err := a.readGraph(args[0])
			if err != nil {
				return err
			}
			nodes, edges := countGraph(g)
			if a.json {
				return a.printJSON(object{{"ok", true}, {"name", g.GetName()}, {"nodes", nodes}, {"edges", edges}})
			}
			_, err = fmt.Fprintf(a.out, "%s: valid, %s and %s\n", printable(args[0]), nounText(nodes, "node"), nounText(edges, "edge"))
			return err
		}),
	}
}

// countGraph counts nodes and edges, those of subgraphs too.
func countGraph(g *perdurev1.Graph) (nodes, edges int) {
	for _, n := range g.GetNodes() {
		nodes++
		edges += len(n.GetAfter())
		if sub := n.GetSubgraph(); sub != nil {
			n, e := countGraph(sub)
			nodes, edges = nodes+n, edges+e
		}
	}
	return nodes, edges
}
