package main

import (
	"context"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) promiseRejectCommand() *cobra.Command {
	var failure perdurev1.Failure
	cmd := &cobra.Command{
		Use:   "reject ID",
		Short: "Settle a promise with a failure",
		Long: `Settle a promise with a failure. Repeating the same rejection changes nothing and
succeeds; a promise that was settled otherwise is a conflict (exit 4).`,
		Example: `  perdure promise reject approval-7 --message "not this time"
  perdure promise reject approval-7 --type declined --details '{"by": "ann"}'`,
		Args: exactly("ID"),
	}
	cmd.Flags().StringVar(&failure.Type, "type", "rejected", "`class` of the failure, for programs")
	cmd.Flags().StringVar(&failure.Message, "message", "", "`text` of the failure, for people")
	details := addPayload(cmd, "details", "details, for programs")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		var err error
		if failure.Details, err = details.read(a.stdin); err != nil {
			return err
		}
		return a.settle(ctx, c, args[0], perdurev1.PromiseState_PROMISE_STATE_REJECTED,
			&perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &failure}})
	})
	return cmd
}
