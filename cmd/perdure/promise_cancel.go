package main

import (
	"context"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) promiseCancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Settle a promise as cancelled",
		Long: `Settle a promise as cancelled; those who wait for it get a cancellation. A promise
that was settled otherwise is a conflict (exit 4).`,
		Example: `  perdure promise cancel approval-7 --reason "order withdrawn"`,
		Args:    exactly("ID"),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, sent to those who wait")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		return a.settle(ctx, c, args[0], perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED,
			&perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: "cancelled", Message: reason}}})
	})
	return cmd
}
