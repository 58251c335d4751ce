package main

import (
	"context"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskAcquireCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acquire ID",
		Short: "Acquire a pending task",
		Long: `Acquire a pending task for a process. The printed version is that of every
further command about the task.`,
		Example: `  perdure task acquire order-42 --version 0 --pid laptop --ttl 5m`,
		Args:    exactly("ID"),
	}
	version, held := addVersion(cmd), addLease(cmd)
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		ttl, err := held.ms()
		if err != nil {
			return err
		}
		t, err := c.AcquireClientTask(ctx, args[0], *version, held.pid, ttl)
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
