package main

import (
	"context"
	"encoding/base32"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"perdure/client"
	"perdure/id"
)

func (a *app) startCommand() *cobra.Command {
	var (
		o     client.StartOptions
		tags  []string
		wait  bool
		bound time.Duration
		reuse string
	)
	cmd := &cobra.Command{
		Use:   "start FUNCTION",
		Short: "Start an execution of a function",
		Long: `Start an execution of a function, and print its id.

The id makes the call safe to repeat: the same function and input find the existing
execution; a different start under the same id is a conflict (exit 4). Without --id
a random id is chosen.

An id whose execution has ended is started again with --reuse: as a new incarnation,
which deletes the previous incarnation's journal.

--wait waits for the end as "perdure result" does, and prints the result instead of
the id. --wait-timeout bounds it: exit code 5 says that the execution continues.`,
		Example: `  perdure start charge --id order-42 --input '{"amount": 5}'
  perdure start report --input @report.json --tag team=billing --timeout 1h
  echo '[1,2,3]' | perdure start sum --input - --wait`,
		Args: exactly("FUNCTION"),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.ID, "id", "", "`id`, the idempotency key; random if missing")
	input := addPayload(cmd, "input", "input of the function")
	flags.DurationVar(&o.Timeout, "timeout", 0, "cancel the execution after this time; 0 means never")
	flags.StringArrayVar(&tags, "tag", nil, "`key=value` label; repeatable")
	flags.StringVar(&o.Digest, "digest", "", "component `digest` to pin it to; default is the current one")
	flags.StringVar(&reuse, "reuse", "reject", "replace an ended execution: `reject`, if-failed or always")
	flags.BoolVar(&wait, "wait", false, "wait for the end and print the result")
	flags.DurationVar(&bound, "wait-timeout", 0, "wait for the end for this time; 0s reads once")
	flags.BoolVar(&o.AllowUnknownFunction, "allow-unknown-function", false, "accept a function that no worker has registered yet")

	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		o.Function = args[0]
		if o.Timeout < 0 {
			return usagef("--timeout %v: must not be negative", o.Timeout)
		}
		if bound < 0 {
			return usagef("--wait-timeout %v: must not be negative", bound)
		}
		var ok bool
		if o.Reuse, ok = reusePolicies[reuse]; !ok {
			return usagef("--reuse %s: must be reject, if-failed or always", reuse)
		}
		var err error
		if o.Tags, err = parseTags(tags); err != nil {
			return err
		}
		drawn := !cmd.Flags().Changed("id")
		if drawn {
			if o.ID, err = randomID(a.random); err != nil {
				return err
			}
		} else if err := id.ValidateRoot(o.ID); err != nil {
			return usagef("%v", err)
		}
		if o.Input, err = a.payload(ctx, input, o.ID); err != nil {
			return err
		}

		started, err := c.Start(ctx, o)
		if err != nil {
			return err
		}
		bounded := cmd.Flags().Changed("wait-timeout")
		if !wait && !bounded {
			if a.json {
				return a.printJSON(startedObject(started))
			}
			if !started.Created {
				fmt.Fprintf(a.stderr, "%s was started before and is %s\n", printable(started.ID), statusText(started.Status))
			}
			_, err = fmt.Fprintln(a.out, started.ID)
			return err
		}
		if drawn && !a.json {
			fmt.Fprintf(a.stderr, "started %s\n", started.ID)
		}
		if !bounded {
			bound = waitForever
		}
		return a.awaitResult(ctx, c, started.ID, bound, startedObject(started)[1:])
	})
	return cmd
}

// reusePolicies are the values of --reuse.
var reusePolicies = map[string]client.Reuse{
	"reject": client.ReuseReject, "if-failed": client.ReuseIfFailed, "always": client.ReuseAlways,
}

// startedObject is the answer of start as JSON.
func startedObject(s client.Started) object {
	return object{{"id", s.ID}, {"incarnation", s.Incarnation}, {"created", s.Created}, {"status", statusText(s.Status)}}
}

// randomID draws 128 bits, written so that they need no quotes anywhere.
func randomID(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("no randomness for an id: %w", err)
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])), nil
}

// waitForever is a wait without a bound.
const waitForever = time.Duration(1<<63 - 1)
