package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) graphRetryCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Run a run again from its failed nodes",
		Long: `Run a run that failed or was cancelled again under the same id, as a new incarnation.
What was completed or skipped is kept; everything else starts over.

Remove the cause first: perdure graph status ID shows it. After http_forbidden
start every node of the cluster with --http-nodes, and with --http-hosts and
--http-networks that allow the call.

Exit codes: 0 it runs again, 3 there is no such run, 4 it has not ended, or it
completed. With --watch, those of perdure graph watch.`,
		Example: `  perdure graph retry report-7
  perdure graph retry report-7 --watch`,
		Args: exactly("ID"),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "draw its progress until it has ended")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		r, err := c.RetryGraph(ctx, args[0])
		if err != nil {
			return hintRetry(ctx, c, args[0], err)
		}
		if watch {
			return a.watchGraph(ctx, c, args[0])
		}
		if a.json {
			return a.printJSON(append(object{{"id", args[0]}}, messageObject(r.ProtoReflect())...))
		}
		_, err = fmt.Fprintf(a.out, "%s runs again as incarnation %d: %s to do, the rest is kept\n", printable(args[0]), r.GetIncarnation(),
			nounText(int(r.GetReset_()), "node"))
		return err
	})
	return cmd
}

// hintRetry adds what to do when a run was not run again because it goes on.
func hintRetry(ctx context.Context, c *client.Client, id string, err error) error {
	if e, ok := api.FromStatus(err); !ok || e.Reason != perdurev1.Reason_REASON_RULE_BROKEN || strings.Contains(id, ":") {
		return err
	}
	if s, askErr := c.GraphStatus(ctx, id); askErr == nil && !client.Ended(s.GetStatus()) {
		return &hintedError{err, "it goes on: perdure graph watch " + shellWord(id) + " shows when it has ended"}
	}
	return err
}
