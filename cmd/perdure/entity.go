package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) entityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "entity",
		Short: "Read, signal and call entities",
		Long: `Read, signal and call entities: named values with a queue of operations. An entity's
id is NAME@KEY: the name that a worker registers, and a key of your choice.`,
		Example: `  perdure entity signal counter@visits add --input 1
  perdure entity get counter@visits
  perdure entity call counter@visits add --input 2
  perdure entity list --name counter`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.entityGetCommand(), a.entitySignalCommand(), a.entityCallCommand(), a.entityListCommand(), a.entityDeleteCommand())
	return cmd
}

func (a *app) entityGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show an entity: its value, queue and lock",
		Long: `Show an entity: its value, what waits for it, and which execution has locked it. It
exits with 3 if the entity has no value and is not in use.`,
		Example: `  perdure entity get counter@visits
  perdure entity get account@alice --json`,
		Args: exactly("ID"),
	}
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		e, err := c.GetEntity(ctx, args[0])
		if err != nil {
			return err
		}
		if e.GetIncarnation() == 0 {
			return api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, "entity %q has no value and is not in use", args[0]).With("id", args[0])
		}
		a.decode(ctx, e.GetId(), "", e.ProtoReflect())
		return a.printEntity(e)
	})
	return cmd
}

// printEntity shows an entity as lines of name and value.
func (a *app) printEntity(e *perdurev1.Entity) error {
	if a.json {
		return a.printJSON(messageObject(e.ProtoReflect()))
	}
	w := a.table()
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	line("ID", printable(e.GetId()))
	if e.GetNamespace() != client.DefaultNamespace {
		line("Namespace", printable(e.GetNamespace()))
	}
	if e.GetExists() {
		line("Value", preview(e.GetValue()))
	} else {
		line("Value", "none")
	}
	line("Queued", fmt.Sprint(e.GetQueued()))
	if n := e.GetScheduled(); n > 0 {
		line("Scheduled", fmt.Sprint(n))
	}
	line("Lock", lockText(e.GetLock()))
	if t := e.GetTask(); t.GetWorker() != "" {
		line("Worker", printable(t.GetWorker()))
	}
	if n := e.GetFailures(); n > 0 {
		line("Failures", fmt.Sprint(n))
	}
	line("Partition", fmt.Sprint(e.GetPartition()))
	return w.Flush()
}

// lockText names the execution that has locked an entity.
func lockText(l *perdurev1.EntityLock) string {
	switch {
	case l == nil:
		return "-"
	case l.GetReleased():
		return printable(l.GetHolder()) + " (released)"
	}
	return printable(l.GetHolder())
}

func (a *app) entitySignalCommand() *cobra.Command {
	var delay time.Duration
	cmd := &cobra.Command{
		Use:   "signal ID OPERATION",
		Short: "Queue an operation of an entity",
		Long:  `Queue an operation of an entity, now or after --delay, and do not wait for it.`,
		Example: `  perdure entity signal counter@visits add --input 1
  perdure entity signal lease@job-7 expire --delay 10m`,
		Args: exactly("ID", "OPERATION"),
	}
	input := addPayload(cmd, "input", "input of the operation")
	cmd.Flags().DurationVar(&delay, "delay", 0, "time after which the operation is queued")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if delay < 0 {
			return usagef("--delay %v: must not be negative", delay)
		}
		value, err := a.payload(ctx, input, args[0])
		if err != nil {
			return err
		}
		if err := c.SignalEntity(ctx, args[0], args[1], value, delay); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(object{{"id", args[0]}, {"operation", args[1]}})
		}
		_, err = fmt.Fprintf(a.out, "operation %q queued at %s\n", args[1], printable(args[0]))
		return err
	})
	return cmd
}

func (a *app) entityCallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "call ID OPERATION",
		Short: "Run an operation of an entity and print its result",
		Long: `Run an operation of an entity, once, and print its result. The operation runs after
those that were queued before, and not while a critical section has locked the entity.

Exit codes: 0 it succeeded; 1 it failed, with the failure on stderr; 3 no worker has
registered such an entity; 5 it has not run within --wait, and may still run.`,
		Example: `  perdure entity call counter@visits add --input 2
  perdure entity call account@alice balance --wait 30s --json`,
		Args: exactly("ID", "OPERATION"),
	}
	input := addPayload(cmd, "input", "input of the operation")
	within := addWait(cmd, "wait", "time to wait (default: until it has run)")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		value, err := a.payload(ctx, input, args[0])
		if err != nil {
			return err
		}
		var result []byte
		err = within.bound(ctx, &notFinishedError{what: "operation " + strconv.Quote(args[1]) + " of", id: args[0],
			hint: "it may still run; perdure entity get " + shellWord(args[0]) + " shows the queue and the lock"}, func(ctx context.Context) error {
			result, err = c.CallEntity(ctx, args[0], args[1], value)
			return err
		})
		if err != nil {
			return err
		}
		if result, err = a.decodeResult(ctx, args[0], result); err != nil {
			return err
		}
		return a.printEntityResult(args[0], args[1], result)
	})
	return cmd
}

func (a *app) printEntityResult(id, operation string, result []byte) error {
	if a.json {
		return a.printJSON(object{{"id", id}, {"operation", operation}, payloadMember("value", result)})
	}
	return a.printRaw(result)
}

func (a *app) entityDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete an entity's value",
		Long: `Delete an entity's value, by its operation "delete": after the operations that were
queued before. An unused entity without a value is no longer stored.`,
		Example: `  perdure entity delete counter@visits`,
		Args:    exactly("ID"),
	}
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		if _, err := c.CallEntity(ctx, args[0], "delete", nil); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(object{{"id", args[0]}})
		}
		_, err := fmt.Fprintf(a.out, "%s deleted\n", printable(args[0]))
		return err
	})
	return cmd
}

func (a *app) entityListCommand() *cobra.Command {
	var (
		name  string
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List entities by id",
		Example: `  perdure entity list
  perdure entity list --name account --limit 0 --json`,
		Args: exactly(),
	}
	cmd.Flags().StringVar(&name, "name", "", "`name` of the entities")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum `number` of rows; 0 for all")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, _ []string) error {
		if limit < 0 {
			return usagef("--limit %d: must not be negative", limit)
		}
		w := a.table()
		rows := 0
		for e, err := range c.ListEntities(ctx, name, limit) {
			if err != nil {
				return err
			}
			rows++
			if a.json {
				a.decode(ctx, e.GetId(), "", e.ProtoReflect())
				if err := a.printJSON(messageObject(e.ProtoReflect())); err != nil {
					return err
				}
				continue
			}
			if rows%tableRows == 1 {
				if err := w.Flush(); err != nil {
					return err
				}
				fmt.Fprintln(w, "ID\tVALUE\tQUEUED\tSCHEDULED\tLOCKED BY")
			}
			value := "no"
			if e.GetExists() {
				value = "yes"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", printable(e.GetId()), value, e.GetQueued(), e.GetScheduled(), lockText(e.GetLock()))
		}
		if a.json {
			return nil
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if rows == 0 {
			fmt.Fprintln(a.stderr, "no entities")
		}
		return nil
	})
	return cmd
}
