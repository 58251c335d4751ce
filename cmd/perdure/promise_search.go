package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) promiseSearchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "search",
		Short:   "List promises by id",
		Long:    `List promises by ascending id: those of clients, and those of executions.`,
		Example: `  perdure promise search --state pending --tag team=billing`,
		Args:    exactly(),
	}
	state := cmd.Flags().String("state", "", "`state`: pending, resolved, rejected, rejected_canceled or rejected_timedout")
	tags := cmd.Flags().StringArray("tag", nil, "`key=value` label that they have; repeatable")
	limit := cmd.Flags().Int("limit", 100, "maximum `number` of rows; 0 for all")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		want, ok := perdurev1.PromiseState_value["PROMISE_STATE_"+strings.ToUpper(*state)]
		if *state != "" && !ok {
			return usagef("--state %q: unknown", *state)
		}
		with, err := parseTags(*tags)
		if err != nil {
			return err
		}
		n, err := searchLimit(*limit)
		if err != nil {
			return err
		}
		rows, w := 0, a.table()
		for p, err := range c.SearchPromises(ctx, perdurev1.PromiseState(want), with, n) {
			if err != nil {
				return err
			}
			if rows++; *limit > 0 && rows > *limit {
				break
			}
			if a.json {
				a.decode(ctx, p.GetId(), "", p.ProtoReflect())
				if err := a.printJSON(messageObject(p.ProtoReflect())); err != nil {
					return err
				}
				continue
			}
			if rows == 1 {
				fmt.Fprintln(w, "ID\tSTATE\tCREATED\tTAGS")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(p.GetId()), promiseStateText(p.GetState()), a.since(p.GetCreatedAtMs()), dash(tagText(p.GetTags())))
		}
		return a.searched(w, rows, *limit, "promises")
	})
	return cmd
}
