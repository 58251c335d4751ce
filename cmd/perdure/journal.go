package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// tableRows is how many rows of a journal or a listing are aligned with each other before they are printed.
// So a long one is neither held in memory nor delayed.
const tableRows = 1000

func (a *app) journalCommand() *cobra.Command {
	var from uint64
	cmd := &cobra.Command{
		Use:   "journal ID",
		Short: "Show an execution's journal",
		Long: `Show an execution's journal: each event with its sequence number, time, promise and
content. With --json, one object per event.

"perdure journal -- check" shows an execution whose id is "check".`,
		Example: `  perdure journal order-42
  perdure journal order-42 --from 100 --json`,
		Args: exactly("ID"),
		RunE: a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			return a.journal(ctx, c, args[0], from)
		}),
	}
	cmd.Flags().Uint64Var(&from, "from", 0, "first `sequence` number")
	cmd.AddCommand(a.journalCheckCommand())
	return cmd
}

func (a *app) journal(ctx context.Context, c *client.Client, id string, from uint64) error {
	w := a.table()
	rows := 0
	for entry, err := range c.Journal(ctx, id, client.FromSeq(from)) {
		if err != nil {
			return err
		}
		a.decode(ctx, id, "", entry.ProtoReflect())
		if a.json {
			if err := a.printJSON(entryObject(entry)); err != nil {
				return err
			}
			continue
		}
		if rows%tableRows == 0 {
			if err := w.Flush(); err != nil {
				return err
			}
			fmt.Fprintln(w, "SEQ\tTIME\tEVENT\tPROMISE\tDETAILS")
		}
		rows++
		promise, details := a.eventText(entry.GetEvent())
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", entry.GetSeq(), a.clock(entry.GetTimeMs()), eventKind(entry.GetEvent()), orDash(promise), dash(details))
	}
	if a.json {
		return nil
	}
	return w.Flush()
}

// eventKind is the name of an event's kind, as the journal spec has it.
func eventKind(e *perdurev1.Event) string {
	m := e.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if kind == nil {
		return "Unknown"
	}
	return string(kind.Message().Name())
}

// entryObject is a row of a journal as JSON: flat.
func entryObject(entry *perdurev1.JournalEntry) object {
	out := object{{"seq", entry.GetSeq()}, {"time_ms", entry.GetTimeMs()}, {"kind", eventKind(entry.GetEvent())}}
	m := entry.GetEvent().ProtoReflect()
	if kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind")); kind != nil {
		for _, field := range messageObject(m.Get(kind).Message()) {
			if field.key == "time_ms" || field.key == "kind" {
				// The row has a time and a kind already: TimeRecorded's time, an invoke's and a wait's kind.
				field.key = "event_" + field.key
			}
			out = append(out, field)
		}
	}
	return out
}

// eventText is an event for people: the promise or join set it is about, and the rest.
func (a *app) eventText(event *perdurev1.Event) (promise, details string) {
	switch k := event.GetKind().(type) {
	case *perdurev1.Event_ExecutionStarted:
		e := k.ExecutionStarted
		details = "input " + preview(e.GetInput())
		if e.GetParentId() != "" {
			details += ", parent " + printable(e.GetParentId())
		}
		if e.GetComponentDigest() != "" {
			details += ", digest " + printable(e.GetComponentDigest())
		}
		return "", details
	case *perdurev1.Event_ExecutionCompleted:
		return "", "result " + preview(k.ExecutionCompleted.GetResult())
	case *perdurev1.Event_ExecutionFailed:
		return "", failureText(k.ExecutionFailed.GetError())
	case *perdurev1.Event_CancelRequested:
		return "", orDash(k.CancelRequested.GetReason())
	case *perdurev1.Event_ExecutionCancelled:
		return "", orDash(k.ExecutionCancelled.GetReason())
	case *perdurev1.Event_InvokeScheduled:
		e := k.InvokeScheduled
		details = enumName(e.GetKind().Descriptor(), int32(e.GetKind())) + " " + orDash(e.GetFunctionName())
		if len(e.GetInput()) > 0 {
			details += ", input " + preview(e.GetInput())
		}
		if e.GetRetryPolicy() != "" {
			details += ", " + printable(e.GetRetryPolicy())
		}
		return e.GetPromiseId(), details
	case *perdurev1.Event_InvokeStarted:
		return k.InvokeStarted.GetPromiseId(), fmt.Sprintf("attempt %d", k.InvokeStarted.GetAttempt())
	case *perdurev1.Event_InvokeCompleted:
		e := k.InvokeCompleted
		return e.GetPromiseId(), fmt.Sprintf("attempt %d: %s", e.GetAttempt(), outcomeText(e.GetResult()))
	case *perdurev1.Event_InvokeRetrying:
		e := k.InvokeRetrying
		return e.GetPromiseId(), fmt.Sprintf("attempt %d failed: %s; next at %s", e.GetFailedAttempt(), failureText(e.GetError()), a.clock(e.GetRetryAtMs()))
	case *perdurev1.Event_RandomGenerated:
		return k.RandomGenerated.GetPromiseId(), randomText(k.RandomGenerated.GetValue())
	case *perdurev1.Event_TimeRecorded:
		return k.TimeRecorded.GetPromiseId(), a.clock(k.TimeRecorded.GetTimeMs())
	case *perdurev1.Event_TimerScheduled:
		e := k.TimerScheduled
		return e.GetPromiseId(), fmt.Sprintf("%s, at %s", millisText(e.GetDurationMs()), a.clock(e.GetFireAtMs()))
	case *perdurev1.Event_TimerFired:
		return k.TimerFired.GetPromiseId(), ""
	case *perdurev1.Event_SignalDelivered:
		e := k.SignalDelivered
		return "", fmt.Sprintf("%q number %d: %s", e.GetName(), e.GetDeliveryId(), outcomeText(e.GetPayload()))
	case *perdurev1.Event_SignalReceived:
		e := k.SignalReceived
		return e.GetPromiseId(), fmt.Sprintf("%q number %d: %s", e.GetName(), e.GetDeliveryId(), outcomeText(e.GetPayload()))
	case *perdurev1.Event_ExecutionAwaiting:
		return "", awaitingText(k.ExecutionAwaiting)
	case *perdurev1.Event_ExecutionResumed:
		return "", ""
	case *perdurev1.Event_JoinSetCreated:
		return k.JoinSetCreated.GetJoinSetId(), ""
	case *perdurev1.Event_JoinSetSubmitted:
		return k.JoinSetSubmitted.GetPromiseId(), "to join set " + printable(k.JoinSetSubmitted.GetJoinSetId())
	case *perdurev1.Event_JoinSetAwaited:
		e := k.JoinSetAwaited
		return e.GetPromiseId(), "from join set " + printable(e.GetJoinSetId()) + ": " + outcomeText(e.GetResult())
	default:
		return "", "an event this binary does not know: use a newer one"
	}
}
