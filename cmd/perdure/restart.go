package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) restartCommand() *cobra.Command {
	var o client.RestartOptions
	cmd := &cobra.Command{
		Use:   "restart ID",
		Short: "Restart an execution as a new incarnation",
		Long: `Restart an execution of a function, open or ended, under the same id and as a new
incarnation. It keeps the input; with --from-event N also the journal's entries 0 to
N-1, so that their operations do not run again (perdure journal ID shows the numbers).
A cut within a wait moves back to the beginning of the wait.

The rest of the journal and its operations are deleted. Signals that came after the
cut are delivered again. Children that are open at the cut continue and bring their
results; --new-children starts them again. A worker of the previous incarnation effects
nothing any more. A caller that waits for an open execution's result gets the new one's.

Exit codes: 0 it runs again, 3 no such execution, 4 it is part of another execution,
is a graph run, or cannot be cut there.`,
		Example: `  perdure restart order-42
  perdure restart order-42 --from-event 17
  perdure restart order-42 --from-event 17 --new-children --digest v2`,
		Args: exactly("ID"),
	}
	flags := cmd.Flags()
	flags.Uint64Var(&o.FromEvent, "from-event", 0, "first `entry` of the journal not to keep; 0 keeps none")
	a.restartFlags(cmd, &o)
	return cmd
}

func (a *app) retryCommand() *cobra.Command {
	o := client.RestartOptions{FromFailure: true}
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Retry a failed or stuck execution",
		Long: `Retry a failed execution of a function under the same id and as a new incarnation. It
keeps the journal up to the operation that failed last, which runs again with all that
follows; if none failed, all but the end. Children that are open there continue, those
that failed start again.

An execution that is stuck, because the code of a worker does not fit its journal, is
given to a worker again. With --digest a stuck or any other open execution, such as one
whose workers are gone, is pinned to that digest and keeps its journal.

Remove the cause first: perdure describe ID shows the failure. For a graph run use
perdure graph retry.

Exit codes: 0 it runs again, 3 no such execution, 4 it is neither failed nor
stuck (with --digest: it has ended otherwise), is part of another execution or is a
graph run.`,
		Example: `  perdure retry order-42
  perdure retry order-42 --digest v2`,
		Args: exactly("ID"),
	}
	a.restartFlags(cmd, &o)
	return cmd
}

// restartFlags adds what restart and retry share.
func (a *app) restartFlags(cmd *cobra.Command, o *client.RestartOptions) {
	cmd.Flags().BoolVar(&o.NewChildren, "new-children", false, "start children again that are open at the cut")
	cmd.Flags().StringVar(&o.Digest, "digest", "", "component `digest` of the new incarnation; default: unchanged")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		r, err := c.Restart(ctx, args[0], *o)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(object{{"id", args[0]}, {"incarnation", r.Incarnation}, {"former_incarnation", r.Former}, {"kept_events", r.Kept}})
		}
		if r.Incarnation == r.Former {
			_, err = fmt.Fprintf(a.out, "%s is given to a worker again\n", printable(args[0]))
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s runs as incarnation %d and keeps %s\n", printable(args[0]), r.Incarnation, nounText(int(r.Kept), "event"))
		return err
	})
}
