package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/internal/days"
)

// forceBelow is how long after its end an execution is purged only by force: the server's rule.
const forceBelow = 10 * time.Minute

// purgesAtOnce is how many purges are under way at once: servers write them in common log entries.
const purgesAtOnce = 32

func (a *app) purgeCommand() *cobra.Command {
	var (
		o         client.ListOptions
		statuses  []string
		olderThan string
		dryRun    bool
		force     bool
	)
	cmd := &cobra.Command{
		Use:   "purge [ID…]",
		Short: "Delete executions that have ended",
		Long: `Delete executions that have ended, with their journals, promises and children, or settled
promises of no execution. Their ids can be used again.

With --older-than it deletes all executions that ended so long ago and match the other
flags, in every partition. It says every two seconds how far it is. It may be interrupted
and repeated: what is deleted stays deleted, and the next one finds the rest. --dry-run
prints the ids instead, also of those that would be kept for an open child.

An execution that is open, or has open children, is kept. One that ended less than ten
minutes ago is deleted only with --force: a start of its id that is still being repeated
starts it again.

The last line counts those that are deleted; "being deleted", by the server, because they
are large; "absent", which something else has deleted; and "kept".

Exit codes: 0 done, 1 interrupted, 2 bad usage, 4 a named execution is kept,
5 unavailable (repeat).`,
		Example: `  perdure purge order-42
  perdure purge --older-than 7d --function charge --dry-run
  perdure purge --older-than 90d --status completed`,
	}
	flags := cmd.Flags()
	flags.StringVar(&olderThan, "older-than", "", "`age` since the end, such as 7d or 36h")
	flags.StringSliceVar(&statuses, "status", nil, "`statuses`: completed, failed, cancelled (default: all)")
	flags.StringVar(&o.Function, "function", "", "`name` of the function")
	flags.StringVar(&o.IDPrefix, "prefix", "", "`prefix` of the ids")
	flags.BoolVar(&dryRun, "dry-run", false, "print what would be deleted")
	flags.BoolVar(&force, "force", false, "also what ended within the last ten minutes")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
		filtered := olderThan != "" || len(statuses) > 0 || o.Function != "" || o.IDPrefix != ""
		switch {
		case len(args) > 0 && (filtered || dryRun):
			return usagef("ids and filters exclude each other")
		case len(args) > 0:
			return a.purgeAll(ctx, c, func(yield func(string, client.PurgeOptions) bool) error {
				for _, id := range args {
					if !yield(id, client.PurgeOptions{Force: force}) {
						break
					}
				}
				return nil
			}, true)
		case olderThan == "":
			return usagef("ids or --older-than are missing")
		}
		age, err := days.Parse(olderThan)
		if err != nil {
			return usagef("--older-than %v", err)
		}
		if age < forceBelow && !force {
			return usagef("--older-than %s: less than %s needs --force", olderThan, days.Format(forceBelow))
		}
		if o.Status, err = endedStatuses(statuses); err != nil {
			return err
		}
		o.PageSize = 1000
		before := time.Now().Add(-age)
		matches := func(yield func(string, client.PurgeOptions) bool) error {
			for e, err := range c.List(ctx, o) {
				if err != nil {
					return err
				}
				if strings.Contains(e.Id, ":") || e.ClosedMs == 0 || !time.UnixMilli(e.ClosedMs).Before(before) {
					continue // part of another execution, which it goes with; or too young
				}
				if !yield(e.Id, client.PurgeOptions{Incarnation: e.Incarnation, EndedBefore: before, Force: force}) {
					return nil
				}
			}
			return nil
		}
		if dryRun {
			n := 0
			err := matches(func(id string, _ client.PurgeOptions) bool {
				n++
				if a.json {
					err = a.printJSON(object{{"id", id}})
				} else {
					_, err = fmt.Fprintln(a.out, id)
				}
				return err == nil
			})
			if err == nil {
				_, err = fmt.Fprintf(a.stderr, "would be deleted: %s\n", nounText(n, "execution"))
			}
			return err
		}
		return a.purgeAll(ctx, c, matches, false)
	})
	return cmd
}

// endedStatuses reads statuses of ended executions; none means all of them.
func endedStatuses(names []string) ([]client.Status, error) {
	ended := []client.Status{perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED,
		perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED}
	if len(names) == 0 {
		return ended, nil
	}
	var out []client.Status
	for _, name := range names {
		status, ok := statusByName(name)
		if !ok || status != ended[0] && status != ended[1] && status != ended[2] {
			return nil, usagef("--status %q: one of completed, failed, cancelled", name)
		}
		out = append(out, status)
	}
	return out, nil
}

// purgeAll purges what visit yields, many at once, and prints how far it is and how much that was. A refusal by the rules counts
// as kept, and the first is printed, unless the ids were named: then it is the command's error.
func (a *app) purgeAll(ctx context.Context, c *client.Client, visit func(yield func(string, client.PurgeOptions) bool) error, named bool) error {
	var (
		mu     sync.Mutex
		counts = map[client.Purged]int{}
		kept   int
		why    *api.Error // the first refusal
		failed error
		wg     sync.WaitGroup
	)
	shown := &progress{a: a, doing: "purging", last: a.now()}
	type item struct {
		id string
		o  client.PurgeOptions
	}
	items := make(chan item)
	for range purgesAtOnce {
		wg.Go(func() {
			for it := range items {
				got, err := c.Purge(ctx, it.id, it.o)
				refused := (*api.Error)(nil)
				mu.Lock()
				switch {
				case err == nil:
					counts[got]++
				case !named && errors.As(err, &refused) && keeps(refused, it.id):
					if kept++; why == nil {
						why = refused
					}
				case failed == nil:
					failed = err
				}
				text := purgedText(counts, kept)
				mu.Unlock()
				shown.at(func() string { return text })
			}
		})
	}
	err := visit(func(id string, o client.PurgeOptions) bool {
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			return false
		}
		items <- item{id, o}
		return true
	})
	close(items)
	wg.Wait()
	if a.json {
		err = errors.Join(err, a.printJSON(object{{"deleted", counts[client.PurgedDeleted]}, {"begun", counts[client.PurgedBegun]},
			{"absent", counts[client.PurgedAbsent]}, {"kept", kept}}))
	} else {
		_, printErr := fmt.Fprintln(a.out, purgedText(counts, kept))
		err = errors.Join(err, printErr)
		if why != nil {
			fmt.Fprintf(a.stderr, "kept: %s\n", sentences(why.Message))
		}
	}
	if failed != nil {
		err = failed
	}
	if err == nil {
		return nil
	}
	return interrupted(ctx, err)
}

// keeps reports whether a refusal of a purge is about the execution itself: it is open in part, or ends just now. Another command may
// delete it later.
func keeps(e *api.Error, id string) bool {
	return e.Reason == perdurev1.Reason_REASON_RULE_BROKEN || e.Reason == perdurev1.Reason_REASON_TRY_LATER && e.Meta["id"] == id
}

// purgedText counts what purges have found.
func purgedText(counts map[client.Purged]int, kept int) string {
	return fmt.Sprintf("%d deleted, %d being deleted, %d absent, %d kept",
		counts[client.PurgedDeleted], counts[client.PurgedBegun], counts[client.PurgedAbsent], kept)
}
