package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// pollFor is how long one long poll for a result is held open.
const pollFor = 20 * time.Second

func (a *app) resultCommand() *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "result ID",
		Short: "Wait for an execution and print its result",
		Long: `Wait until an execution ends, and print its result on stdout, byte for byte (plus a
newline on a terminal).

Exit codes: 0 completed; 1 failed or cancelled, with the failure on stderr; 3 no such
execution; 5 not finished within --wait, or no node answered (retry).`,
		Example: `  perdure result order-42
  perdure result order-42 --wait 30s
  perdure result order-42 --wait 0s --json`,
		Args: exactly("ID"),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "time to wait; 0s reads once (default: until it ends)")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if !cmd.Flags().Changed("wait") {
			wait = waitForever
		}
		if wait < 0 {
			return usagef("--wait %v: must not be negative", wait)
		}
		return a.awaitResult(ctx, c, args[0], wait, nil)
	})
	return cmd
}

// awaitResult waits for an execution's end, for so long, and prints its result. started are the members
// that a start before it adds to the JSON object; the last of them is the status it had then, and is
// replaced.
func (a *app) awaitResult(ctx context.Context, c *client.Client, id string, wait time.Duration, started object) error {
	result, done, err := poll(ctx, c, id, wait)
	var failed *client.ExecutionError
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	err = a.decodeError(ctx, err)
	if done && failed == nil {
		if result, err = a.decodeResult(ctx, id, result); err != nil {
			return err
		}
	}
	if !done {
		err = &notFinishedError{what: "execution", id: id, waited: wait}
	}
	if !a.json {
		if err != nil {
			return err
		}
		return a.printRaw(result)
	}

	out := object{{"id", id}}
	if len(started) > 0 {
		out = append(out, started[:len(started)-1]...)
	}
	out = append(out, member{"done", done})
	switch {
	case failed != nil:
		out = append(out, member{"status", statusText(failed.Status)}, member{"failure", messageObject(failed.Failure.ProtoReflect())})
	case done:
		out = append(out, member{"status", statusText(perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED)}, payloadMember("value", result))
	}
	if printErr := a.printJSON(out); printErr != nil {
		return printErr
	}
	return err
}

// poll reads a result until it is there or wait has passed. It reads at least once.
func poll(ctx context.Context, c *client.Client, id string, wait time.Duration) (result []byte, done bool, err error) {
	began := time.Now()
	for {
		left := wait - time.Since(began)
		result, done, err = c.PollResult(ctx, id, max(0, min(left, pollFor)))
		if done || err != nil || wait-time.Since(began) <= 0 {
			return result, done, err
		}
	}
}

// printRaw prints a payload byte for byte. People get a line end after it.
func (a *app) printRaw(payload []byte) error {
	_, err := a.out.Write(payload)
	if err == nil && a.terminal && len(payload) > 0 && payload[len(payload)-1] != '\n' {
		err = a.out.WriteByte('\n')
	}
	return err
}
