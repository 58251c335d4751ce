package main

import (
	"context"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) promiseResolveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve ID",
		Short: "Settle a promise with a value",
		Long: `Settle a promise with a value. Repeating the same resolution changes nothing and
succeeds; a promise that was settled otherwise is a conflict (exit 4).`,
		Example: `  perdure promise resolve approval-7 --value '{"approved": true}'
  perdure promise resolve approval-7 --value @answer.json`,
		Args: exactly("ID"),
	}
	value := addPayload(cmd, "value", "value of the promise")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		payload, err := value.read(a.stdin)
		if err != nil {
			return err
		}
		return a.settle(ctx, c, args[0], perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
			&perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: payload}})
	})
	return cmd
}
