package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get ID",
		Short:   "Show a task",
		Long:    `Show a task and the state of its promise.`,
		Example: `  perdure task get order-42 --json`,
		Args:    exactly("ID"),
	}
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		t, err := c.ClientTask(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
