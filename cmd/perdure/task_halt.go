package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskHaltCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "halt ID",
		Short:   "Take a task out of service",
		Long:    `Take a task out of service, in any state but fulfilled. Its holder loses the lease.`,
		Example: `  perdure task halt order-42`,
		Args:    exactly("ID"),
	}
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		t, err := c.HaltClientTask(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
