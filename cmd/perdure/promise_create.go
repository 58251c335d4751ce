package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) promiseCreateCommand() *cobra.Command {
	var (
		timeout time.Duration
		tags    []string
	)
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Create a promise",
		Long: `Create a promise that times out unless it is settled in time. An existing promise is
shown unchanged, whatever the flags.`,
		Example: `  perdure promise create approval-7 --timeout 24h
  perdure promise create approval-7 --timeout 24h --param '{"order": 42}' --tag team=billing`,
		Args: exactly("ID"),
	}
	param := addPayload(cmd, "param", "parameter for those who settle it")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "time until it times out (required)")
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "`key=value` label; repeatable")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if timeout <= 0 {
			return usagef("--timeout is required and must be more than 0: when does the promise time out?")
		}
		o := client.PromiseOptions{Timeout: timeout}
		var err error
		if o.Tags, err = parseTags(tags); err != nil {
			return err
		}
		if o.Param, err = a.payload(ctx, param, args[0]); err != nil {
			return err
		}
		p, err := c.CreatePromise(ctx, args[0], o)
		if err != nil {
			return err
		}
		a.decode(ctx, args[0], "", p.ProtoReflect())
		return a.printPromise(p)
	})
	return cmd
}
