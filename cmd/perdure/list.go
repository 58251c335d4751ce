package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) listCommand() *cobra.Command {
	var (
		o        client.ListOptions
		statuses []string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List executions, newest first",
		Example: `  perdure list
  perdure list --status running,blocked --function charge
  perdure list --prefix order- --limit 0 --json
  perdure list --problem`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&statuses, "status", nil, "`statuses`: "+strings.Join(statusNames(), ", "))
	flags.StringVar(&o.Function, "function", "", "`name` of the function")
	flags.StringVar(&o.IDPrefix, "prefix", "", "`prefix` of the ids")
	flags.BoolVar(&o.Problem, "problem", false, "only open executions that their worker could not advance")
	flags.IntVar(&o.Limit, "limit", 100, "maximum `number` of rows; 0 for all")
	if err := cmd.RegisterFlagCompletionFunc("status", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return statusNames(), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err) // only if the flag does not exist
	}
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, _ []string) error {
		if o.Limit < 0 {
			return usagef("--limit %d: must not be negative", o.Limit)
		}
		for _, name := range statuses {
			status, ok := statusByName(name)
			if !ok {
				return usagef("--status %q: unknown; one of %s", name, strings.Join(statusNames(), ", "))
			}
			o.Status = append(o.Status, status)
		}
		return a.list(ctx, c, o)
	})
	return cmd
}

// list prints the selected executions. It asks for one more than the limit, to know whether there are more.
func (a *app) list(ctx context.Context, c *client.Client, o client.ListOptions) error {
	limit := o.Limit
	if limit > 0 {
		o.Limit++
	}
	w := a.table()
	rows, more := 0, false
	for e, err := range c.List(ctx, o) {
		if err != nil {
			return err
		}
		if more = limit > 0 && rows == limit; more {
			break
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
			last := "FINISHED\tPARENT"
			if o.Problem {
				last = "PROBLEM"
			}
			fmt.Fprintln(w, "ID\tFUNCTION\tSTATUS\tSTARTED\t"+last)
		}
		if o.Problem {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(e.GetId()), orDash(e.GetFunction()), statusText(e.GetStatus()),
				a.since(e.GetCreatedMs()), printable(e.GetProblem()))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(e.GetId()), orDash(e.GetFunction()), statusText(e.GetStatus()),
			a.since(e.GetCreatedMs()), a.since(e.GetClosedMs()), orDash(e.GetParentId()))
	}
	if a.json {
		return nil
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case rows == 0:
		fmt.Fprintln(a.stderr, "no executions")
	case more:
		fmt.Fprintf(a.stderr, "the first %d; there are more (--limit)\n", rows)
	}
	return nil
}

// statusNames are the names of all statuses, in the order of their numbers.
func statusNames() []string {
	values := perdurev1.ExecutionStatus(0).Descriptor().Values()
	var names []string
	for i := range values.Len() {
		if n := values.Get(i).Number(); n != 0 {
			names = append(names, statusText(perdurev1.ExecutionStatus(n)))
		}
	}
	return names
}

func statusByName(name string) (perdurev1.ExecutionStatus, bool) {
	n, ok := perdurev1.ExecutionStatus_value["EXECUTION_STATUS_"+strings.ToUpper(strings.TrimSpace(name))]
	return perdurev1.ExecutionStatus(n), ok && n != 0
}
