package durable

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// ReplayCheckIn and ReplayCheckOut, in the environment, make Worker.Run check journals instead of working.
// They name files: In has one Task message as JSON in each line, with the whole journal; Out gets a
// ReplayVerdict as JSON for each, in the same order. perdure replay-check sets them.
const (
	ReplayCheckIn  = "PERDURE_REPLAY_CHECK_IN"
	ReplayCheckOut = "PERDURE_REPLAY_CHECK_OUT"
)

// ReplayVerdict says whether a worker's code fits an execution's journal. A check runs no step and commits nothing.
type ReplayVerdict struct {
	ID       string `json:"id"`
	Function string `json:"function"`
	Fits     bool   `json:"fits"`
	// Events is the length of the journal, Operations how many of its operations the code asked for.
	Events     int    `json:"events"`
	Operations uint32 `json:"operations"`
	// The first difference: the promise id, the number of its first journal entry, what the journal has there and what
	// the code does. They are empty if the code fits, or cannot be run.
	At      string `json:"at,omitempty"`
	Event   uint64 `json:"event,omitempty"`
	Journal string `json:"journal,omitempty"`
	Code    string `json:"code,omitempty"`
	// Problem says why the code cannot be run, or what it did instead of replaying.
	Problem string `json:"problem,omitempty"`
}

// replayCheckTimeout bounds the check of one journal. Replay waits for nothing.
const replayCheckTimeout = 30 * time.Second

// replayCheck is the state of an activation that checks a journal.
type replayCheck struct {
	// last is the journal's last event.
	last *perdurev1.Event
	// err is the difference found, or the problem.
	err error
}

// replayCheckAsked tells Run to check journals.
func replayCheckAsked() bool {
	return os.Getenv(ReplayCheckIn) != "" && os.Getenv(ReplayCheckOut) != ""
}

// replayCheck checks the journals of the file that the environment names.
func (w *Worker) replayCheck(ctx context.Context) (err error) {
	w.base, w.ctx = ctx, ctx
	in, err := os.Open(os.Getenv(ReplayCheckIn))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(os.Getenv(ReplayCheckOut), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return w.CheckReplay(ctx, in, out)
}

// CheckReplay checks the worker's functions against journals: in has one Task message as JSON in each line,
// out gets one ReplayVerdict for each. It needs no cluster. Use it in tests; perdure replay-check exports the
// lines.
func (w *Worker) CheckReplay(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			task := &perdurev1.Task{}
			if err := protojson.Unmarshal(line, task); err != nil {
				return fmt.Errorf("durable: a journal to check: %w", err)
			}
			verdict, err := json.Marshal(w.verdict(ctx, task))
			if err != nil {
				return err
			}
			if _, err := out.Write(append(verdict, '\n')); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// verdict replays one journal.
func (w *Worker) verdict(ctx context.Context, task *perdurev1.Task) ReplayVerdict {
	v := ReplayVerdict{ID: task.GetToken().GetId(), Function: task.GetFunction(), Events: len(task.GetEntries())}
	f := w.functions[v.Function]
	switch {
	case task.GetCleanupOf() != nil:
		v.Problem = "it is a clean-up, whose own journal says nothing without the cancelled one"
		return v
	case f == nil:
		v.Problem = fmt.Sprintf("the worker does not serve function %q", v.Function)
		return v
	case len(task.GetEntries()) == 0:
		v.Problem = "its journal is empty"
		return v
	}
	if w.base == nil {
		w.base = ctx
	}
	t := newActivation(newHold(w, task), task)
	t.check = &replayCheck{last: task.GetEntries()[v.Events-1].GetEvent()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.checkJournal(f, task.GetEntries())
	}()
	select {
	case <-done:
	case <-w.clock.After(replayCheckTimeout):
		v.Problem = fmt.Sprintf("the code did not ask for the next operation within %s", replayCheckTimeout)
		return v
	case <-ctx.Done():
		v.Problem = ctx.Err().Error()
		return v
	}
	v.Operations = t.next
	var differs *MismatchError
	switch {
	case t.check.err == nil:
		v.Fits = true
	case errors.As(t.check.err, &differs):
		v.At, v.Journal, v.Code = differs.ID, differs.Journal, differs.Code
		v.Event = entryOf(task.GetEntries(), differs.ID)
	default:
		v.Problem = t.check.err.Error()
	}
	return v
}

// entryOf is the number of the first entry of an operation, or of the last entry if there is none.
func entryOf(entries []*perdurev1.JournalEntry, promise string) uint64 {
	h := history{id: id.PromiseID(promise)}
	if parent, ok := h.id.Parent(); ok {
		h.id = parent
	}
	for _, e := range entries {
		before := len(h.ops)
		if h.ingest([]*perdurev1.JournalEntry{e}) != nil {
			break
		}
		if len(h.ops) > before && string(h.id.Child(uint32(before))) == promise {
			return e.GetSeq()
		}
	}
	return entries[len(entries)-1].GetSeq()
}

// checkJournal runs the function against the journal, in a goroutine of its own, up to its first operation that is not
// recorded.
func (t *activation) checkJournal(f Registration, entries []*perdurev1.JournalEntry) {
	t.owner.Store(goroutine())
	defer t.cancel(errLost)
	defer func() {
		p := recover()
		t.owner.Store(0)
		switch {
		case t.unwinding:
		case p != nil:
			t.check.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		case t.entered && !t.returned:
			t.check.err = errors.New("durable: runtime.Goexit was called")
		}
	}()
	t.ingest(entries)
	ctx := execContext{t.functionContext(), t}
	t.goLiveIfReplayed()
	t.entered = true
	out, err := f.call(ctx, t)
	if err != nil {
		err = t.afterError(ctx, err)
	}
	t.returned = true
	t.checkEnd(out, err)
}

// checkEnd compares the function's end with the journal's.
func (t *activation) checkEnd(out []byte, err error) {
	c := t.check
	if m := t.misuse.Load(); m != nil {
		c.err = m
		return
	}
	if int(t.next) < len(t.journal.ops) && !t.journal.cancelled {
		rec := t.journal.ops[t.next]
		c.err = &MismatchError{ID: t.child(t.next), Journal: rec.kind.describe(rec.name), Code: "the code returns before it"}
		return
	}
	id := string(t.journal.id)
	switch k := c.last.GetKind().(type) {
	case *perdurev1.Event_ExecutionCompleted:
		switch {
		case err != nil:
			c.err = &MismatchError{ID: id, Journal: "completed", Code: "the code returns the error " + err.Error()}
		case !bytes.Equal(out, k.ExecutionCompleted.GetResult()):
			c.err = &MismatchError{ID: id, Journal: fmt.Sprintf("completed with %.100q", k.ExecutionCompleted.GetResult()), Code: fmt.Sprintf("the code returns %.100q", out)}
		}
	case *perdurev1.Event_ExecutionFailed:
		if err == nil {
			c.err = &MismatchError{ID: id, Journal: fmt.Sprintf("failed with %q", k.ExecutionFailed.GetError().GetMessage()), Code: fmt.Sprintf("the code returns %.100q", out)}
		}
	}
}

// frontier ends a check where the code goes beyond the journal: it fits, unless the journal has ended there. It returns
// when the activation is no check.
func (t *activation) frontier(code string) {
	if t.check == nil {
		return
	}
	switch t.check.last.GetKind().(type) {
	case *perdurev1.Event_ExecutionCompleted, *perdurev1.Event_ExecutionFailed:
		t.check.err = &MismatchError{ID: t.child(t.next), Journal: "no operation, the execution has ended", Code: code}
	}
	t.unwind()
}
