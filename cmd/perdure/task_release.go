package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskReleaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "release ID",
		Short:   "Give an acquired task back",
		Long:    `Give an acquired task back unfinished.`,
		Example: `  perdure task release order-42 --version 1`,
		Args:    exactly("ID"),
	}
	version := addVersion(cmd)
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		t, err := c.ReleaseClientTask(ctx, args[0], *version)
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
