package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) graphRetryCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Run a run again from its failed nodes",
		Long: `Run a run that failed or was cancelled again under the same id, as a new incarnation.
What was completed or skipped is kept; everything else starts over.

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
			return err
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
