package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"perdure/client"
)

// waitFlag is a flag that bounds how long a command waits for an end.
type waitFlag struct {
	*pflag.Flag
	wait time.Duration
}

func addWait(cmd *cobra.Command, name, usage string) *waitFlag {
	f := &waitFlag{}
	cmd.Flags().DurationVar(&f.wait, name, 0, usage)
	f.Flag = cmd.Flags().Lookup(name)
	return f
}

// bound calls f with a context that ends after the flag's time, if the flag is set. It returns late if f fails then.
func (w *waitFlag) bound(ctx context.Context, late *notFinishedError, f func(ctx context.Context) error) error {
	if !w.Changed {
		return f(ctx)
	}
	if w.wait <= 0 {
		return usagef("--%s %v: must be more than 0", w.Name, w.wait)
	}
	bounded, stop := context.WithTimeout(ctx, w.wait)
	defer stop()
	err := f(bounded)
	var ended *client.ExecutionError
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && !errors.As(err, &ended) {
		late.waited = w.wait
		return late
	}
	return err
}
