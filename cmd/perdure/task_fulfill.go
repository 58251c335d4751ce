package main

import (
	"context"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) taskFulfillCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fulfill ID",
		Short: "Settle the promise of an acquired task",
		Long:  `Settle the promise of an acquired task with a value.`,
		Example: `  perdure task fulfill order-42 --version 1 --value true
  perdure task fulfill order-42 --version 1 --rejected --value '{"message": "no"}'`,
		Args: exactly("ID"),
	}
	version := addVersion(cmd)
	rejected := cmd.Flags().Bool("rejected", false, "reject the promise with the value")
	value := addPayload(cmd, "value", "value of the promise")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		payload, err := a.payload(ctx, value, args[0])
		if err != nil {
			return err
		}
		to := perdurev1.PromiseState_PROMISE_STATE_RESOLVED
		if *rejected {
			to = perdurev1.PromiseState_PROMISE_STATE_REJECTED
		}
		t, err := c.FulfillClientTask(ctx, args[0], *version, to, payload)
		if err != nil {
			return err
		}
		return a.printTask(t)
	})
	return cmd
}
