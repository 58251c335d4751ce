package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) graphOutcomeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "outcome ID NODE",
		Short: "Print the output of one node of a run",
		Long: `Print the output of one node on stdout, byte for byte (plus a newline on a
terminal). A skipped node's output is null, which is also what later nodes get.

Exit codes: 0 completed or skipped; 1 failed, with the failure on stderr; 3 no such
run or node; 5 not ended yet.`,
		Example: `  perdure graph outcome report-7 parse
  perdure graph outcome report-7 parse --json | jq .state.attempt`,
		Args: exactly("ID", "NODE"),
		RunE: a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			o, err := c.NodeOutcome(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			var ended error
			switch o.GetState().GetStatus() {
			case perdurev1.NodeStatus_NODE_STATUS_COMPLETED, perdurev1.NodeStatus_NODE_STATUS_SKIPPED:
			case perdurev1.NodeStatus_NODE_STATUS_FAILED:
				ended = errors.New(failedNodeText(args[0], o.GetState()))
			default:
				ended = &hintedError{&notFinishedError{what: "node", id: args[1]},
					"perdure graph status " + shellWord(args[0]) + " shows how far it is"}
			}
			if a.json {
				return errors.Join(a.printJSON(messageObject(o.ProtoReflect())), ended)
			}
			if ended != nil {
				return ended
			}
			if o.GetState().GetStatus() == perdurev1.NodeStatus_NODE_STATUS_SKIPPED {
				fmt.Fprintf(a.stderr, "%s was skipped\n", printable(args[1]))
				return a.printRaw([]byte("null"))
			}
			return a.printRaw(o.GetOutput())
		}),
	}
}

func failedNodeText(run string, n *perdurev1.GraphNodeState) string {
	text := fmt.Sprintf("node %q of %q failed", n.GetId(), run)
	switch {
	case n.GetByPropagation():
		return text + " because a node before it did"
	case n.GetFailure() != nil:
		return text + ": " + failureText(n.GetFailure())
	}
	return text
}
