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
		Short: "Retry a run from its failed nodes",
		Long: `Retry a run that failed or was cancelled, under the same id and as a new incarnation.
Completed and skipped nodes keep their results; all other nodes start over.

Remove the cause first: perdure graph status ID shows it. After http_forbidden,
restart every cluster node with --http-nodes, and with --http-hosts and
--http-networks that allow the call.

Exit codes: 0 the run is running again, 3 no such run, 4 it has not ended or it
completed. With --watch, those of perdure graph watch.`,
		Example: `  perdure graph retry report-7
  perdure graph retry report-7 --watch`,
		Args: exactly("ID"),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "draw the progress until the run ends")
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
		_, err = fmt.Fprintf(a.out, "%s is retried as incarnation %d: %s start over, the others keep their results\n", printable(args[0]), r.GetIncarnation(),
			nounText(int(r.GetReset_()), "node"))
		return err
	})
	return cmd
}

// hintRetry adds a hint when a retry was refused because the run has not ended.
func hintRetry(ctx context.Context, c *client.Client, id string, err error) error {
	if e, ok := api.FromStatus(err); !ok || e.Reason != perdurev1.Reason_REASON_RULE_BROKEN || strings.Contains(id, ":") {
		return err
	}
	if s, askErr := c.GraphStatus(ctx, id); askErr == nil && !client.Ended(s.GetStatus()) {
		return &hintedError{err, "perdure graph watch " + shellWord(id) + " waits for its end"}
	}
	return err
}
