package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"perdure/client"
)

func (a *app) signalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "signal ID NAME",
		Short: "Send a named value to an execution",
		Long: `Send a named value to an execution. The cluster buffers it until the execution waits
for that name; values of one name arrive in the order in which they were sent.

An id that no execution has is not found (exit 3). --start starts a function under the
id in the same change, unless one is open: then that gets the signal.`,
		Example: `  perdure signal order-42 approved --payload '{"by": "ann"}'
  perdure signal order-42 stop
  perdure signal cart-7 add --payload '"book"' --start cart --input '{}'`,
		Args: exactly("ID", "NAME"),
	}
	payload := addPayload(cmd, "payload", "payload of the signal")
	var o client.StartOptions
	cmd.Flags().StringVar(&o.Function, "start", "", "`function` to start if the id has no execution")
	input := payload.another("input", "input of the started function")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		value, err := a.payload(ctx, payload, args[0])
		if err != nil {
			return err
		}
		started := false
		switch {
		case o.Function != "":
			o.ID = args[0]
			if o.Input, err = a.payload(ctx, input, args[0]); err == nil {
				started, err = c.SignalWithStart(ctx, o, args[1], value)
			}
		case input.given():
			err = usagef("--input: needs --start FUNCTION")
		default:
			err = c.Signal(ctx, args[0], args[1], value)
		}
		if err != nil {
			return err
		}
		if a.json {
			out := object{{"id", args[0]}, {"name", args[1]}}
			if o.Function != "" {
				out = append(out, member{"started", started})
			}
			return a.printJSON(out)
		}
		if started {
			_, err = fmt.Fprintf(a.out, "signal %q sent to %s, which it started\n", args[1], printable(args[0]))
			return err
		}
		_, err = fmt.Fprintf(a.out, "signal %q sent to %s\n", args[1], printable(args[0]))
		return err
	})
	return cmd
}
