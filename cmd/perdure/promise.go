package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) promiseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "promise",
		Short: "Create, read and settle promises",
		Long: `Create, read and settle promises: values that are written once, before a
deadline, and that anyone may wait for.`,
		Example: `  perdure promise create approval-7 --timeout 24h
  perdure promise get approval-7 --wait 1m
  perdure promise resolve approval-7 --value true`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.promiseCreateCommand(), a.promiseGetCommand(), a.promiseResolveCommand(),
		a.promiseRejectCommand(), a.promiseCancelCommand(), a.promiseSearchCommand())
	return cmd
}

// settle settles a promise and prints it. A promise that was settled differently before is a conflict: exit 0
// means that it holds the requested value.
func (a *app) settle(ctx context.Context, c *client.Client, id string, state perdurev1.PromiseState, value *perdurev1.Outcome) error {
	sent := value
	if value.GetFailure() == nil {
		encoded, err := a.encode(ctx, id, "value", value.GetValue())
		if err != nil {
			return err
		}
		sent = &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: encoded}}
	}
	p, err := c.SettlePromise(ctx, id, state, sent)
	if err != nil {
		return err
	}
	if p.GetState() != state {
		return &conflictError{id, fmt.Sprintf("promise %q is %s already", id, promiseStateText(p.GetState()))}
	}
	same := sameOutcome(p.GetValue(), sent)
	a.decode(ctx, id, "", p.ProtoReflect())
	// A codec may encode the same value differently each time.
	if !same && !sameOutcome(p.GetValue(), value) {
		return &conflictError{id, fmt.Sprintf("promise %q is %s already, with another value", id, promiseStateText(state))}
	}
	return a.printPromise(p)
}

// sameOutcome compares a requested outcome with the stored one; an empty value equals none.
func sameOutcome(a, b *perdurev1.Outcome) bool {
	if a.GetFailure() != nil || b.GetFailure() != nil {
		return proto.Equal(a.GetFailure(), b.GetFailure())
	}
	return bytes.Equal(a.GetValue(), b.GetValue())
}

func promiseStateText(s perdurev1.PromiseState) string { return enumName(s.Descriptor(), int32(s)) }

// printPromise shows a promise as lines of name and value.
func (a *app) printPromise(p *perdurev1.Promise) error {
	if a.json {
		return a.printJSON(messageObject(p.ProtoReflect()))
	}
	w := a.table()
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("ID", printable(p.GetId()))
	if p.GetNamespace() != client.DefaultNamespace {
		line("Namespace", printable(p.GetNamespace()))
	}
	line("State", strings.ReplaceAll(promiseStateText(p.GetState()), "_", ", "))
	if o := p.GetValue(); o != nil {
		line("Value", outcomeText(o))
	}
	if len(p.GetParam()) > 0 {
		line("Param", preview(p.GetParam()))
	}
	line("Tags", tagText(p.GetTags()))
	line("Created", a.moment(p.GetCreatedAtMs()))
	if p.GetState() == perdurev1.PromiseState_PROMISE_STATE_PENDING {
		line("Times out", a.moment(p.GetTimeoutAtMs()))
	} else {
		line("Settled", a.moment(p.GetSettledAtMs()))
	}
	return w.Flush()
}
