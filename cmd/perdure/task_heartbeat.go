package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskHeartbeatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "heartbeat ID",
		Short: "Extend the lease of an acquired task",
		Long: `Extend the lease of a task that a process holds at a version. If it does not hold it,
that is a conflict (exit 4).`,
		Example: `  perdure task heartbeat order-42 --version 1 --pid laptop`,
		Args:    exactly("ID"),
	}
	version := addVersion(cmd)
	pid := cmd.Flags().String("pid", "", "`name` of the process that holds the task")
	_ = cmd.MarkFlagRequired("pid")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		held, err := c.HeartbeatClientTask(ctx, args[0], *version, *pid)
		if err != nil {
			return err
		}
		if !held {
			return &conflictError{args[0], fmt.Sprintf("task %q is not held by %q at version %d", args[0], *pid, *version)}
		}
		t, err := c.ClientTask(ctx, args[0])
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
