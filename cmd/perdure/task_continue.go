package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskContinueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "continue ID",
		Short:   "Put a halted task back into service",
		Long:    `Put a halted task back into service.`,
		Example: `  perdure task continue order-42`,
		Args:    exactly("ID"),
	}
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		t, err := c.ContinueClientTask(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
