package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) cancelCommand() *cobra.Command {
	var (
		reason string
		grace  time.Duration
		wait   bool
	)
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Ask an execution to stop",
		Long: `Ask an execution to stop. It is cancelled when its worker acknowledges or the grace
period ends. If its function has registered a clean-up, that runs as an execution of
its own, which "perdure describe" names.

--wait waits for the end of the execution and of its clean-up; exit 1 if the clean-up
fails, 5 if it has not ended --within a time.`,
		Example: `  perdure cancel order-42 --reason "customer withdrew"
  perdure cancel order-42 --grace 5m --wait --within 10m`,
		Args: exactly("ID"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, recorded in the journal")
	cmd.Flags().DurationVar(&grace, "grace", 30*time.Second, "time the worker has to acknowledge")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end and for its clean-up")
	within := addWait(cmd, "within", "longest time of --wait (default: no limit)")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if grace <= 0 {
			return usagef("--grace %v: must be more than 0 (perdure terminate ends an execution at once)", grace)
		}
		if wait {
			return within.bound(ctx, &notFinishedError{what: "execution or clean-up of", id: args[0],
				hint: "perdure describe " + shellWord(args[0]) + " shows what it waits for"}, func(ctx context.Context) error {
				return a.cancelWait(ctx, c, args[0], reason, grace)
			})
		}
		if within.Changed {
			return usagef("--within is for --wait")
		}
		status, err := c.Cancel(ctx, args[0], reason, grace)
		if err != nil {
			return err
		}
		return a.printStatus(args[0], status)
	})
	return cmd
}

// cancelWait cancels an execution and waits for its end and for its clean-up.
func (a *app) cancelWait(ctx context.Context, c *client.Client, id, reason string, grace time.Duration) error {
	ended, err := c.CancelWait(ctx, id, reason, grace)
	var failed *client.ExecutionError
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	out := object{{"id", id}, {"status", statusText(ended.Status)}}
	text := fmt.Sprintf("%s is %s", printable(id), statusText(ended.Status))
	if ended.CleanupID != "" {
		status := perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
		if failed != nil {
			status = failed.Status
		}
		out = append(out, member{"cleanup", object{{"id", ended.CleanupID}, {"status", statusText(status)}}})
		text += fmt.Sprintf(", its clean-up %s is %s", printable(ended.CleanupID), statusText(status))
	}
	if a.json {
		if printErr := a.printJSON(out); printErr != nil {
			return printErr
		}
		return err
	}
	if _, printErr := fmt.Fprintln(a.out, text); printErr != nil {
		return printErr
	}
	return err
}

// printStatus is the answer of commands that change an execution's status.
func (a *app) printStatus(id string, status client.Status) error {
	if a.json {
		return a.printJSON(object{{"id", id}, {"status", statusText(status)}})
	}
	_, err := fmt.Fprintf(a.out, "%s is %s\n", printable(id), statusText(status))
	return err
}
