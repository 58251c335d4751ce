package state

import (
	"strings"
	"testing"

	"perdure/journal"
	"perdure/recovery"
)

// ended is the header of a leaf that has ended, with a task and a journal that fit.
func ended() (h Header, task recovery.Task, entries []byte) {
	h = Header{ID: "e", Incarnation: 3, Function: "f", Digest: "d", CreatedMS: 1, ClosedMS: 2, Status: journal.StatusCompleted, Events: 2, HeaderMore: HeaderMore{Leaf: true}}
	task = recovery.Task{ID: "e", Incarnation: 3, State: recovery.TaskFulfilled, Version: 7, Target: "f"}
	return h, task, AppendInline(AppendInline(nil, []byte("one")), []byte("two"))
}

// SetInline refuses a task or a journal that the header could not return unchanged, and then leaves the header unchanged.
func TestSetInlineRefuses(t *testing.T) {
	for what, change := range map[string]func(task *recovery.Task, entries *[]byte){
		"nothing":             nil,
		"pinned to the code":  func(task *recovery.Task, _ *[]byte) { task.Target = Target("f", "d") },
		"another target":      func(task *recovery.Task, _ *[]byte) { task.Target = "g" },
		"an open task":        func(task *recovery.Task, _ *[]byte) { task.State = recovery.TaskSuspended },
		"another incarnation": func(task *recovery.Task, _ *[]byte) { task.Incarnation = 2 },
		"a released task":     func(task *recovery.Task, _ *[]byte) { task.Releases = 1 },
		"too long":            func(_ *recovery.Task, entries *[]byte) { *entries = make([]byte, InlineBytes+1) },
	} {
		h, task, entries := ended()
		if change != nil {
			change(&task, &entries)
		}
		fits := what == "nothing" || what == "pinned to the code"
		if got := h.SetInline(task, entries); got != fits || (h.Inline != "") != fits {
			t.Errorf("%s: taken %t, %q inline", what, got, h.Inline)
		}
		if !fits {
			continue
		}
		back, err := DecodeHeader(h.Encode())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, ok := back.InlineTask(); !ok || !sameTask(got, task) {
			t.Errorf("%s: the task comes back as %+v, %t", what, got, ok)
		}
		if got := back.InlineEntries(); len(got) != 2 || string(got[0]) != "one" || string(got[1]) != "two" {
			t.Errorf("%s: the entries come back as %q", what, got)
		}
	}
}

// A header whose inline part is not what it says is damaged.
func TestInlineDamaged(t *testing.T) {
	for what, change := range map[string]func(h *Header){
		"one entry fewer":   func(h *Header) { h.Events = 3 },
		"one entry more":    func(h *Header) { h.Events = 1 },
		"cut short":         func(h *Header) { h.Inline = h.Inline[:len(h.Inline)-1] },
		"no journal":        func(h *Header) { h.Inline = h.Inline[:2] },
		"no flag":           func(h *Header) { h.Inline = "\x07\x02" + h.Inline[2:] },
		"pinned to nothing": func(h *Header) { h.Inline, h.Digest = "\x07\x01"+h.Inline[2:], "" },
		"open":              func(h *Header) { h.Status = journal.StatusRunning },
		"a graph run":       func(h *Header) { h.Kind = KindGraph },
		"begun again":       func(h *Header) { h.Generation = 1 },
		"too long":          func(h *Header) { h.Inline += strings.Repeat("x", InlineBytes) },
	} {
		h, task, entries := ended()
		if !h.SetInline(task, entries) {
			t.Fatal("it does not fit")
		}
		change(&h)
		if got, err := DecodeHeader(h.Encode()); err == nil {
			t.Errorf("%s: read as %+v", what, got)
		}
	}
}
