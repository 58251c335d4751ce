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
		if got := h.SetInline(task, nil, entries); got != fits || (h.Inline != "") != fits {
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

// settled is a header that has ended with a result, its task and its entries, and the promise that follows from them.
func settled() (h Header, task recovery.Task, p recovery.Promise, entries []byte) {
	h, task, _ = ended()
	h.Tags, h.DeadlineMS = []recovery.Tag{{Key: "a", Value: "1"}}, 9
	entries = AppendInline(nil, journal.AppendEntry(nil, journal.Entry{Event: journal.ExecutionStarted{}}))
	entries = AppendInline(entries, journal.AppendEntry(nil, journal.Entry{Seq: 1, Time: 2, Event: journal.ExecutionCompleted{Result: []byte("r")}}))
	p = recovery.Promise{ID: "e", Incarnation: 3, State: recovery.PromiseResolved, Value: recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("r")}),
		Tags: h.Tags, Target: "f", TimeoutAt: 9, CreatedAt: 1, SettledAt: 2}
	return h, task, p, entries
}

// A promise is inline only if the header returns it unchanged. Task and journal are then inline nevertheless.
func TestInlinePromise(t *testing.T) {
	for what, change := range map[string]func(h *Header, p *recovery.Promise){
		"nothing":             nil,
		"of an operation":     func(h *Header, p *recovery.Promise) { h.ID, p.ID = "e:1", "e:1" },
		"another id":          func(_ *Header, p *recovery.Promise) { p.ID = "d" },
		"another incarnation": func(_ *Header, p *recovery.Promise) { p.Incarnation = 2 },
		"another end":         func(_ *Header, p *recovery.Promise) { p.State = recovery.PromiseRejected },
		"a parameter":         func(_ *Header, p *recovery.Promise) { p.Param = []byte("p") },
		"another value":       func(_ *Header, p *recovery.Promise) { p.Value = nil },
		"no tags":             func(_ *Header, p *recovery.Promise) { p.Tags = nil },
		"another target":      func(_ *Header, p *recovery.Promise) { p.Target = "g" },
		"a timer":             func(_ *Header, p *recovery.Promise) { p.Timer = true },
		"an external one":     func(_ *Header, p *recovery.Promise) { p.External = true },
		"another deadline":    func(_ *Header, p *recovery.Promise) { p.TimeoutAt = Never },
		"made earlier":        func(_ *Header, p *recovery.Promise) { p.CreatedAt = 0 },
		"settled later":       func(_ *Header, p *recovery.Promise) { p.SettledAt = 3 },
		"delayed":             func(_ *Header, p *recovery.Promise) { p.DelayUntil = 2 },
	} {
		h, task, p, entries := settled()
		if change != nil {
			change(&h, &p)
		}
		task.ID = h.ID
		if !h.SetInline(task, &p, entries) {
			t.Fatalf("%s: not taken", what)
		}
		back, err := DecodeHeader(h.Encode())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got, ok := back.InlinePromise()
		if ok != (what == "nothing") || ok != h.HasInlinePromise() || ok && !samePromise(got, p) {
			t.Errorf("%s: comes back as %+v, %t", what, got, ok)
		}
		listed, err := ReadListingClosed(ListingClosed(&back))
		if err != nil || listed.InlinePromise != ok || !listed.Inline {
			t.Errorf("%s: listed as %+v, %v", what, listed, err)
		}
		back.DropInlinePromise()
		if kept, there := back.InlineTask(); !there || !sameTask(kept, task) || back.HasInlinePromise() || len(back.InlineEntries()) != 2 {
			t.Errorf("%s: without the promise it has the task %+v and %d entries", what, kept, len(back.InlineEntries()))
		}
	}
}

// A header that has a promise inline which does not follow from the rest is damaged, and so is a listing entry with an unknown part.
func TestInlinePromiseDamaged(t *testing.T) {
	for what, change := range map[string]func(h *Header){
		"of an operation": func(h *Header) { h.ID = "e:1" },
		"no end": func(h *Header) {
			h.Inline = h.Inline[:2] + string(AppendInline(AppendInline(nil, []byte("one")), []byte("two")))
		},
		"another flag": func(h *Header) { h.Inline = h.Inline[:1] + "\x06" + h.Inline[2:] },
	} {
		h, task, p, entries := settled()
		if !h.SetInline(task, &p, entries) || !h.HasInlinePromise() {
			t.Fatal("it does not fit")
		}
		change(&h)
		if got, err := DecodeHeader(h.Encode()); err == nil {
			t.Errorf("%s: read as %+v", what, got)
		}
	}
	h, task, p, entries := settled()
	h.SetInline(task, &p, entries)
	row := ListingClosed(&h)
	row[len(row)-1] = 3
	if got, err := ReadListingClosed(row); err == nil {
		t.Errorf("a listing entry is read as %+v", got)
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
		if !h.SetInline(task, nil, entries) {
			t.Fatal("it does not fit")
		}
		change(&h)
		if got, err := DecodeHeader(h.Encode()); err == nil {
			t.Errorf("%s: read as %+v", what, got)
		}
	}
}

// A header whose journal of an open execution is not what it says is damaged.
func TestOpenDamaged(t *testing.T) {
	open := func() Header {
		return Header{ID: "e", Incarnation: 3, Function: "f", Status: journal.StatusRunning, CreatedMS: 1, Events: 2,
			Open: AppendInline(AppendInline(nil, []byte("one")), []byte("two"))}
	}
	h := open()
	back, err := DecodeHeader(h.Encode())
	if got := back.OpenEntries(); err != nil || !back.HasEntries() || len(got) != 2 || string(got[0]) != "one" || string(got[1]) != "two" {
		t.Fatalf("%q, %v", got, err)
	}
	for what, change := range map[string]func(h *Header){
		"one entry fewer":  func(h *Header) { h.Events = 3 },
		"one entry more":   func(h *Header) { h.Events = 1 },
		"too many entries": func(h *Header) { h.Events, h.Open = InlineEvents+1, make([]byte, InlineEvents+1) },
		"cut short":        func(h *Header) { h.Open = h.Open[:len(h.Open)-1] },
		"ended":            func(h *Header) { h.Status = journal.StatusCompleted },
		"a graph run":      func(h *Header) { h.Kind = KindGraph },
		"begun again":      func(h *Header) { h.Generation = 1 },
		"too long":         func(h *Header) { h.Open = AppendInline(AppendInline(nil, []byte("one")), make([]byte, InlineBytes)) },
	} {
		h := open()
		change(&h)
		if got, err := DecodeHeader(h.Encode()); err == nil {
			t.Errorf("%s: read as %+v", what, got)
		}
	}
}

// How large a journal may be in the header of an open execution depends on its age.
func TestOpenFits(t *testing.T) {
	h := Header{CreatedMS: 5}
	for _, c := range []struct {
		bytes int
		age   int64
		want  bool
	}{{OpenBytes, 1 << 40, true}, {OpenBytes + 1, InlineMS, true}, {OpenBytes + 1, InlineMS + 1, false}, {InlineBytes, InlineMS, true}, {InlineBytes + 1, 0, false}} {
		if got := h.OpenFits(c.bytes, 5+c.age); got != c.want {
			t.Errorf("%d bytes after %d ms: %t", c.bytes, c.age, got)
		}
	}
}
