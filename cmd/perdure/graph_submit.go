package main

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"perdure/client"
	"perdure/id"
)

func (a *app) graphSubmitCommand() *cobra.Command {
	var (
		o         client.SubmitGraphOptions
		tags      []string
		inputFile string
		watch     bool
	)
	cmd := &cobra.Command{
		Use:   "submit FILE",
		Short: "Start a run of a graph",
		Long: `Start a run of a graph, and print its id.

The id makes the call safe to repeat: the same graph and input find the existing
run; a different graph or input under the same id is a conflict (exit 4). Without
--id a random id is chosen.

--watch draws the progress as "perdure graph watch" does instead of printing the
id, and exits with the run's exit code.`,
		Example: `  perdure graph submit report.yaml --id report-7 --input '{"file": "in.csv"}'
  perdure graph submit report.yaml --id report-7 --input-file input.json --watch
  generate-graph | perdure graph submit - --timeout 2h`,
		Args: exactly("FILE"),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.ID, "id", "", "`id` of the run, its idempotency key; random if missing")
	asItIs := true
	input := &payloadFlag{name: "input", cmd: cmd, raw: &asItIs}
	flags.StringVar(&input.text, "input", "", "input of the run: `JSON`, @FILE, or - for stdin")
	flags.StringVar(&inputFile, "input-file", "", "`file` of the input, like --input @FILE")
	flags.DurationVar(&o.Timeout, "timeout", 0, "cancel the run after this time; 0 means never")
	flags.StringArrayVar(&tags, "tag", nil, "`key=value` label; repeatable")
	flags.BoolVar(&o.AllowUnknownFunctions, "allow-unknown-function", false, "accept functions that no worker has registered yet")
	flags.BoolVar(&watch, "watch", false, "draw the progress until the run ends")

	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if o.Timeout < 0 {
			return usagef("--timeout %v: must not be negative", o.Timeout)
		}
		var err error
		if o.Tags, err = parseTags(tags); err != nil {
			return err
		}
		if args[0] == "-" && input.text == "-" {
			return usagef("the graph and --input cannot both be standard input")
		}
		if o.Input, err = a.graphInput(input, inputFile); err != nil {
			return err
		}
		if o.Graph, err = a.readGraph(args[0]); err != nil {
			return err
		}
		unnamed := !flags.Changed("id")
		if unnamed {
			if o.ID, err = randomID(a.random); err != nil {
				return err
			}
		} else if err := id.ValidateRoot(o.ID); err != nil {
			return usagef("%v", err)
		}

		started, err := c.SubmitGraph(ctx, o)
		if err != nil {
			return err
		}
		switch {
		case !started.Created && !a.json:
			fmt.Fprintf(a.stderr, "%s was submitted before and is %s\n", printable(started.ID), statusText(started.Status))
		case watch && unnamed && !a.json:
			fmt.Fprintf(a.stderr, "started %s\n", started.ID)
		}
		if watch {
			return a.watchGraph(ctx, c, started.ID)
		}
		if a.json {
			return a.printJSON(startedObject(started))
		}
		_, err = fmt.Fprintln(a.out, started.ID)
		return err
	})
	return cmd
}

// graphInput reads the input of a run from one of its two flags. It must be JSON: nodes take members of it.
func (a *app) graphInput(input *payloadFlag, file string) ([]byte, error) {
	given := input.cmd.Flags().Changed("input")
	if input.cmd.Flags().Changed("input-file") {
		if given {
			return nil, usagef("--input and --input-file: one of them")
		}
		payload, err := readFile(file)
		if err != nil {
			return nil, usagef("--input-file %s: %v", file, err)
		}
		if len(payload) > id.MaxPayloadBytes {
			return nil, usagef("--input-file: more than %d bytes, the most a payload may have", id.MaxPayloadBytes)
		}
		return jsonInput("--input-file", payload)
	}
	payload, err := input.read(a.stdin)
	if err != nil || !given {
		return nil, err
	}
	return jsonInput("--input", payload)
}

func jsonInput(flag string, payload []byte) ([]byte, error) {
	if !utf8.Valid(payload) || !json.Valid(payload) {
		return nil, usagef("%s is not JSON (a text needs its quotes: '\"like this\"')", flag)
	}
	return payload, nil
}
