package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
)

func (a *app) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe ID",
		Short: "Show an execution's status, wait and worker",
		Example: `  perdure describe order-42
  perdure describe order-42 --json`,
		Args: exactly("ID"),
		RunE: a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			e, err := c.Describe(ctx, args[0])
			if err != nil {
				return err
			}
			a.decode(ctx, e.GetId(), "", e.ProtoReflect())
			for _, s := range e.GetSteps() {
				a.decode(ctx, e.GetId(), "", s.ProtoReflect())
			}
			if a.json {
				return a.printJSON(messageObject(e.ProtoReflect()))
			}
			return a.describe(e)
		}),
	}
}

// describe shows an execution as lines of name and value, without the fields that it lacks.
func (a *app) describe(e *perdurev1.Execution) error {
	w := a.table()
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("ID", printable(e.GetId()))
	if e.GetNamespace() != client.DefaultNamespace {
		line("Namespace", printable(e.GetNamespace()))
	}
	line("Function", orDash(e.GetFunction()))
	line("Status", statusText(e.GetStatus()))
	if e.GetWaiting() != nil {
		line("Waits for", awaitingText(e.GetWaiting()))
	}
	line("Woken by", wakeText(e.GetWakeSource(), e.GetComponentDigest()))
	if held := e.GetHeldLocks(); len(held) > 0 {
		line("Holds", printable(strings.Join(held, ", ")))
	}
	line("Task", a.taskText(e.GetTask(), e.GetWakeSource()))
	for _, s := range e.GetSteps() {
		line("Heartbeat", a.stepText(s))
	}
	if e.GetLastProblem() != "" {
		line("Problem", printable(e.GetLastProblem()))
	}
	if o := e.GetOutcome(); o != nil {
		if f := o.GetFailure(); f != nil {
			line("Failure", failureText(f))
		} else {
			line("Result", preview(o.GetValue()))
		}
	}
	if e.GetCancelReason() != "" {
		line("Cancelled for", printable(e.GetCancelReason()))
	}
	if c := e.GetCleanup(); c != nil {
		line("Clean-up", cleanupText(c))
	}
	if e.GetCleanupOf() != "" {
		line("Cleans up", printable(e.GetCleanupOf()))
	}
	line("Created", a.moment(e.GetCreatedMs()))
	if ms := e.GetDeadlineMs(); ms != 0 {
		line("Deadline", a.moment(ms))
	}
	if ms := e.GetClosedMs(); ms != 0 {
		line("Finished", a.moment(ms)+", after "+span(time.Duration(ms-e.GetCreatedMs())*time.Millisecond))
	}
	line("Journal", journalText(e.GetJournalEvents()))
	if e.GetParentId() != "" {
		line("Parent", printable(e.GetParentId()))
	}
	line("Tags", tagText(e.GetTags()))
	if e.GetComponentDigest() != "" {
		line("Digest", printable(e.GetComponentDigest()))
	}
	if n := e.GetFormerIncarnations(); n != 0 {
		line("Follows", fmt.Sprintf("incarnation %d, %d in all", e.GetFormerIncarnation(), n))
	}
	line("Partition", fmt.Sprintf("%d, incarnation %d", e.GetPartition(), e.GetIncarnation()))
	return w.Flush()
}

func journalText(events uint64) string {
	if events >= id.JournalWarnEvents {
		return fmt.Sprintf("%d events: it is long; continue as new, or divide the work into children", events)
	}
	return fmt.Sprintf("%d events", events)
}

// cleanupText shows the clean-up of a cancelled execution.
func cleanupText(c *perdurev1.Cleanup) string {
	text := printable(c.GetId()) + ", " + statusText(c.GetStatus())
	if f := c.GetOutcome().GetFailure(); f != nil {
		text += ": " + failureText(f)
	}
	return text
}

// awaitingText shows what an execution waits for.
func awaitingText(w *perdurev1.ExecutionAwaiting) string {
	ids := make([]string, len(w.GetWaitingOn()))
	for i, id := range w.GetWaitingOn() {
		ids[i] = printable(id)
	}
	on := strings.Join(ids, ", ")
	switch w.GetKind() {
	case perdurev1.AwaitKind_AWAIT_KIND_SIGNAL:
		return fmt.Sprintf("signal %q as %s", w.GetSignalName(), on)
	case perdurev1.AwaitKind_AWAIT_KIND_ANY:
		return "any of " + on
	case perdurev1.AwaitKind_AWAIT_KIND_ALL:
		return "all of " + on
	case perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET:
		return fmt.Sprintf("the next of join set %s, %s or another member", printable(w.GetJoinSetId()), on)
	default:
		return on
	}
}

// wakeText explains the wake sources whose names do not say what to do.
func wakeText(source, digest string) string {
	switch source {
	case "no worker":
		if digest != "" {
			return "no worker: none that is connected serves this function and digest " + printable(digest) + "; perdure retry --digest pins it to another"
		}
		return "no worker: none that is connected serves this function"
	case "signal":
		return "signal: not sent yet (perdure signal)"
	case "stuck: code":
		return "stuck: the code does not fit the journal; a worker of other code wakes it, or perdure retry"
	case "finished":
		return ""
	}
	if entity, unserved := strings.CutSuffix(source, ", no worker"); unserved {
		return printable(entity) + ", which waits for a worker (perdure entity get)"
	}
	return printable(source)
}

// stepText shows what a running step last reported, and when.
func (a *app) stepText(s *perdurev1.StepHeartbeat) string {
	text := fmt.Sprintf("step %q as %s, attempt %d, %s", s.GetName(), printable(s.GetPromiseId()), s.GetAttempt(), a.since(s.GetAtMs()))
	if len(s.GetDetails()) == 0 {
		return text
	}
	return text + ": " + preview(s.GetDetails())
}

// taskText shows the worker that may advance the execution, and until when.
func (a *app) taskText(t *perdurev1.TaskInfo, wakeSource string) string {
	if t == nil {
		return ""
	}
	text := fmt.Sprintf("%s, version %d", orDash(t.GetState()), t.GetVersion())
	if t.GetWorker() != "" {
		text += ", worker " + printable(t.GetWorker())
	}
	if t.GetLeaseUntilMs() != 0 {
		text += ", lease ends " + a.since(t.GetLeaseUntilMs())
	}
	if wakeSource == "retry timer" || wakeSource == "start delay" {
		text += ", goes to a worker " + a.since(t.GetRetryAtMs())
	}
	return text
}
