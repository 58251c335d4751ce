package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) taskCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create a promise with an acquired task",
		Long: `Create a promise whose task a process holds, or acquire the pending task of an
existing promise.`,
		Example: `  perdure task create order-42 --target poll://any@default --timeout 24h --pid laptop`,
		Args:    exactly("ID"),
	}
	held := addLease(cmd)
	target := cmd.Flags().String("target", "", "`address` of the workers")
	timeout := cmd.Flags().Duration("timeout", 24*time.Hour, "time until the promise times out")
	tags := cmd.Flags().StringArray("tag", nil, "`key=value` label; repeatable")
	param := addPayload(cmd, "param", "parameter for its worker")
	_ = cmd.MarkFlagRequired("target")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		ttl, err := held.ms()
		if err != nil {
			return err
		}
		o := client.ClientPromiseOptions{TimeoutAtMS: time.Now().Add(*timeout).UnixMilli()}
		if o.Tags, err = parseTags(*tags); err != nil {
			return err
		}
		if o.Tags == nil {
			o.Tags = map[string]string{}
		}
		o.Tags["resonate:target"] = *target
		if o.Param, err = a.payload(ctx, param, args[0]); err != nil {
			return err
		}
		t, err := c.CreateClientTask(ctx, args[0], held.pid, ttl, o)
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
