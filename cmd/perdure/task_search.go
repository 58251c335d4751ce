package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) taskSearchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "search",
		Short:   "List tasks by id",
		Long:    `List tasks of the recovery protocol by ascending id.`,
		Example: `  perdure task search --state pending --limit 0 --json`,
		Args:    exactly(),
	}
	state := cmd.Flags().String("state", "", "`state`: pending, acquired, suspended, halted or fulfilled")
	limit := cmd.Flags().Int("limit", 100, "maximum `number` of rows; 0 for all")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		want, ok := perdurev1.TaskState_value["TASK_STATE_"+strings.ToUpper(*state)]
		if *state != "" && !ok {
			return usagef("--state %q: unknown", *state)
		}
		n, err := searchLimit(*limit)
		if err != nil {
			return err
		}
		rows, w := 0, a.table()
		for t, err := range c.SearchClientTasks(ctx, perdurev1.TaskState(want), n) {
			if err != nil {
				return err
			}
			if rows++; *limit > 0 && rows > *limit {
				break
			}
			if a.json {
				if err := a.printJSON(messageObject(t.ProtoReflect())); err != nil {
					return err
				}
				continue
			}
			if rows == 1 {
				fmt.Fprintln(w, "ID\tSTATE\tVERSION\tHOLDER\tADDRESS")
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", printable(t.GetId()), taskStateText(t.GetState()), t.GetVersion(), orDash(t.GetPid()), printable(t.GetAddress()))
		}
		return a.searched(w, rows, *limit, "tasks")
	})
	return cmd
}
