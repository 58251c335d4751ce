package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) cancelCommand() *cobra.Command {
	var (
		reason string
		grace  time.Duration
	)
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Ask an execution to stop",
		Long: `Ask an execution to stop. It is cancelled when its worker acknowledges or the grace
period ends. If its function has registered a clean-up, that runs as an execution of
its own, which "perdure describe" names.`,
		Example: `  perdure cancel order-42 --reason "customer withdrew"
  perdure cancel order-42 --grace 5m`,
		Args: exactly("ID"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, recorded in the journal")
	cmd.Flags().DurationVar(&grace, "grace", 30*time.Second, "time the worker has to acknowledge")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if grace <= 0 {
			return usagef("--grace %v: must be more than 0 (perdure terminate ends an execution at once)", grace)
		}
		status, err := c.Cancel(ctx, args[0], reason, grace)
		if err != nil {
			return err
		}
		return a.printStatus(args[0], status)
	})
	return cmd
}

// printStatus is the answer of commands that change an execution's status.
func (a *app) printStatus(id string, status client.Status) error {
	if a.json {
		return a.printJSON(object{{"id", id}, {"status", statusText(status)}})
	}
	_, err := fmt.Fprintf(a.out, "%s is %s\n", printable(id), statusText(status))
	return err
}
