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
for that name; values of one name arrive in the order in which they were sent.`,
		Example: `  perdure signal order-42 approved --payload '{"by": "ann"}'
  perdure signal order-42 stop`,
		Args: exactly("ID", "NAME"),
	}
	payload := addPayload(cmd, "payload", "payload of the signal")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		value, err := payload.read(a.stdin)
		if err != nil {
			return err
		}
		if err := c.Signal(ctx, args[0], args[1], value); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(object{{"id", args[0]}, {"name", args[1]}})
		}
		_, err = fmt.Fprintf(a.out, "signal %q sent to %s\n", args[1], printable(args[0]))
		return err
	})
	return cmd
}
