package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) taskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "task",
		Short: "Work on tasks of the recovery protocol by hand",
		Long: `Work on tasks of the recovery protocol by hand. A promise with the tag
resonate:target has a task: the process that acquires it holds a lease, and
alone may settle the promise as its worker. Each command names the version that
the acquire printed.`,
		Example: `  perdure task search --state pending
  perdure task acquire order-42 --version 0 --pid laptop
  perdure task fulfill order-42 --version 1 --value true`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.taskGetCommand(), a.taskCreateCommand(), a.taskAcquireCommand(), a.taskReleaseCommand(), a.taskSuspendCommand(),
		a.taskFulfillCommand(), a.taskHeartbeatCommand(), a.taskHaltCommand(), a.taskContinueCommand(), a.taskSearchCommand())
	return cmd
}

// addVersion gives a command the flag of a task's version.
func addVersion(cmd *cobra.Command) *uint64 {
	version := cmd.Flags().Uint64("version", 0, "`version` that the holder was given")
	_ = cmd.MarkFlagRequired("version")
	return version
}

// lease is the pair of flags of a command that acquires a task.
type lease struct {
	pid string
	ttl time.Duration
}

// ms is the length of the lease in milliseconds.
func (l *lease) ms() (int64, error) {
	if l.ttl < time.Millisecond {
		return 0, usagef("--ttl %v: must be at least 1ms", l.ttl)
	}
	return l.ttl.Milliseconds(), nil
}

func addLease(cmd *cobra.Command) *lease {
	l := &lease{}
	cmd.Flags().StringVar(&l.pid, "pid", "", "`name` of the process that holds the task")
	cmd.Flags().DurationVar(&l.ttl, "ttl", time.Minute, "time until the lease ends without a heartbeat")
	_ = cmd.MarkFlagRequired("pid")
	return l
}

func taskStateText(s perdurev1.TaskState) string { return enumName(s.Descriptor(), int32(s)) }

// printTask shows a task as lines of name and value.
func (a *app) printTask(r *perdurev1.ClientTaskResponse) error {
	if a.json {
		return a.printJSON(messageObject(r.ProtoReflect()))
	}
	t := r.GetTask()
	w := a.table()
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("ID", printable(t.GetId()))
	if t.GetNamespace() != client.DefaultNamespace {
		line("Namespace", printable(t.GetNamespace()))
	}
	line("State", taskStateText(t.GetState()))
	line("Version", fmt.Sprint(t.GetVersion()))
	line("Address", printable(t.GetAddress()))
	if t.GetPid() != "" {
		line("Holder", printable(t.GetPid()))
		line("Lease ends", a.moment(t.GetLeaseAtMs()))
	}
	if t.GetRetryAtMs() != 0 {
		line("Announced again", a.moment(t.GetRetryAtMs()))
	}
	line("Resumed by", printable(strings.Join(t.GetResumes(), " ")))
	for _, p := range r.GetReady() {
		line("Settled", printable(p.GetId())+" "+promiseStateText(p.GetState()))
	}
	if p := r.GetPromise(); p != nil {
		line("Promise", promiseStateText(p.GetState()))
	}
	return w.Flush()
}

// searchLimit is how many rows a search asks for: one more than it shows, to know whether there are more.
func searchLimit(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, usagef("--limit %d: must not be negative", limit)
	case limit == 0:
		return 0, nil
	}
	return limit + 1, nil
}

// searched ends the table of a search.
func (a *app) searched(w *tabwriter.Writer, rows, limit int, what string) error {
	if a.json {
		return nil
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case rows == 0:
		fmt.Fprintf(a.stderr, "no %s\n", what)
	case limit > 0 && rows > limit:
		fmt.Fprintf(a.stderr, "the first %d; there are more (--limit)\n", limit)
	}
	return nil
}
