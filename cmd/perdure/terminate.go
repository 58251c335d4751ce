package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) terminateCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "terminate ID",
		Short: "End an execution at once",
		Long: `End an execution at once, without its worker. Nothing is cleaned up; "perdure cancel"
lets the worker clean up.`,
		Example: `  perdure terminate order-42 --reason "runs in circles"`,
		Args:    exactly("ID"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, recorded in the journal")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		status, err := c.Terminate(ctx, args[0], reason)
		if err != nil {
			return err
		}
		return a.printStatus(args[0], status)
	})
	return cmd
}
