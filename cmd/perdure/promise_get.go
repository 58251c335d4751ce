package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) promiseGetCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show a promise, or wait until it settles",
		Long: `Show a promise: one that "promise create" made, or one that belongs to an execution.
With --wait, wait until it settles, and exit with 5 if the time ends first. A rejected
promise is shown like any other, with exit code 0.`,
		Example: `  perdure promise get approval-7
  perdure promise get approval-7 --wait 1m --json`,
		Args: exactly("ID"),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "time to wait for its settlement")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if wait < 0 {
			return usagef("--wait %v: must not be negative", wait)
		}
		p, err := c.GetPromise(ctx, args[0])
		if err != nil {
			return err
		}
		if wait > 0 && pending(p) {
			limited, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			settled, err := c.AwaitPromise(limited, args[0])
			switch {
			case err == nil:
				p = settled
			case !errors.Is(limited.Err(), context.DeadlineExceeded):
				return err
			}
		}
		a.decode(ctx, args[0], "", p.ProtoReflect())
		if err := a.printPromise(p); err != nil {
			return err
		}
		if wait > 0 && pending(p) {
			return &notFinishedError{what: "promise", id: args[0], waited: wait}
		}
		return nil
	})
	return cmd
}

func pending(p *perdurev1.Promise) bool {
	return p.GetState() == perdurev1.PromiseState_PROMISE_STATE_PENDING
}
