package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskSuspendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "suspend ID",
		Short: "Wait for promises with an acquired task",
		Long: `Put an acquired task to sleep until one of the awaited promises settles. If one has
settled, the task stays acquired.`,
		Example: `  perdure task suspend order-42 --version 1 --await order-42:0 --await order-42:1`,
		Args:    exactly("ID"),
	}
	version := addVersion(cmd)
	awaited := cmd.Flags().StringArray("await", nil, "`id` of a promise of the same origin; repeatable")
	_ = cmd.MarkFlagRequired("await")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		t, err := c.SuspendClientTask(ctx, args[0], *version, *awaited...)
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
