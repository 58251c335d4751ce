package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

// drawn is a struct with drawn fields, also those that are added later. Empty slices are nil, as decoders leave them.
func drawn[T any](t *rapid.T) T {
	v := rapid.Make[T]().Draw(t, "value")
	for i, r := 0, reflect.ValueOf(&v).Elem(); i < r.NumField(); i++ {
		if f := r.Field(i); f.Kind() == reflect.Slice && f.Len() == 0 {
			f.SetZero()
		}
	}
	return v
}

var drawHeader = rapid.Custom(func(t *rapid.T) *Header {
	h := drawn[Header](t)
	h.Kind = rapid.SampledFrom([]Kind{KindFunction, KindGraph}).Draw(t, "kind")
	h.Generation = rapid.Uint32Range(0, MaxGeneration).Draw(t, "generation")
	if h.Kind == KindFunction {
		h.Generation = rapid.Uint32Range(0, 2).Draw(t, "incarnations")
	}
	if h.Kind == KindFunction && h.Generation == 0 {
		h.Former, h.Wave, h.GraphAt = 0, 0, 0
	}
	if h.Kind == KindGraph || h.Generation == 0 {
		h.Kept, h.Attached, h.SweepAt, h.Sweep, h.StartInput = 0, 0, 0, nil, nil
	}
	if h.Open = nil; h.MayBeOpen() && rapid.Bool().Draw(t, "open") {
		h.Status = rapid.SampledFrom([]journal.Status{journal.StatusRunning, journal.StatusBlocked}).Draw(t, "running")
		entries := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 20), 1, InlineEvents).Draw(t, "open entries")
		h.Events = uint64(len(entries))
		for _, entry := range entries {
			h.Open = AppendInline(h.Open, entry)
		}
	}
	if h.Inline = ""; h.Kind == KindFunction && h.Generation == 0 && rapid.Bool().Draw(t, "inline") {
		h.Status = rapid.SampledFrom([]journal.Status{journal.StatusCompleted, journal.StatusFailed, journal.StatusCancelled}).Draw(t, "end")
		entries := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 20), 1, InlineEvents).Draw(t, "entries")
		var promise *recovery.Promise
		target := rapid.SampledFrom([]string{h.Function, Target(h.Function, h.Digest)}).Draw(t, "target")
		if rapid.Bool().Draw(t, "promise") {
			result := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "result")
			entries[len(entries)-1] = journal.AppendEntry(nil, journal.Entry{Event: journal.ExecutionCompleted{Result: result}})
			promise = &recovery.Promise{ID: h.ID, Incarnation: h.Incarnation, State: recovery.PromiseResolved, Tags: h.Tags, Target: target,
				Value: recovery.AppendOutcome(nil, recovery.Outcome{Data: result}), TimeoutAt: h.DeadlineMS, CreatedAt: h.CreatedMS, SettledAt: h.ClosedMS}
			if h.DeadlineMS == 0 {
				promise.TimeoutAt = Never
			}
		}
		var all []byte
		for _, entry := range entries {
			all = AppendInline(all, entry)
		}
		h.Events = uint64(len(entries))
		task := recovery.Task{ID: h.ID, Incarnation: h.Incarnation, State: recovery.TaskFulfilled, Version: rapid.Uint64().Draw(t, "version"),
			Target: target}
		if !h.SetInline(task, promise, all) {
			t.Fatalf("%+v and %d entries are not taken", task, len(entries))
		}
		if want := promise != nil && MayInlinePromise(h.ID); h.HasInlinePromise() != want {
			t.Fatalf("the promise is inline: %t, want %t", !want, want)
		}
	}
	return &h
})

var drawRow = rapid.Custom(func(t *rapid.T) *NodeRow {
	r := drawn[NodeRow](t)
	r.Status = reduction.StatusKind(rapid.Uint8Range(1, 6).Draw(t, "status"))
	return &r
})

var drawHeartbeats = rapid.Custom(func(t *rapid.T) []StepHeartbeat {
	out := make([]StepHeartbeat, rapid.IntRange(1, 4).Draw(t, "steps"))
	for i := range out {
		out[i] = drawn[StepHeartbeat](t)
		out[i].Child = uint32(i) * rapid.Uint32Range(1, 1000).Draw(t, "child")
		if i > 0 {
			out[i].Child = max(out[i].Child, out[i-1].Child+1)
		}
	}
	return out
})

// checkCodec: a value is read back as it was, and bytes that are read are those that the value read from them has. So
// every other sequence of bytes is refused.
func checkCodec[T any](t *testing.T, draw *rapid.Generator[T], encode func(T) []byte, decode func([]byte) (T, error)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		v := draw.Draw(t, "v")
		b := encode(v)
		if got, err := decode(bytes.Clone(b)); err != nil || !reflect.DeepEqual(got, v) {
			t.Fatalf("%+v comes back as %+v, %v", v, got, err)
		}
		other := func(how string, b []byte) {
			if got, err := decode(bytes.Clone(b)); err == nil && !bytes.Equal(encode(got), b) {
				t.Fatalf("%s: %x is read as %+v, which is written as %x", how, b, got, encode(got))
			}
		}
		for n := range b {
			other("cut", b[:n])
			changed := bytes.Clone(b)
			changed[n] ^= rapid.ByteRange(1, 255).Draw(t, "change")
			other("changed", changed)
			other("one more", append(append(bytes.Clone(b[:n]), rapid.Byte().Draw(t, "more")), b[n:]...))
		}
		other("longer", append(bytes.Clone(b), rapid.Byte().Draw(t, "more")))
	})
}

func TestEncodings(t *testing.T) {
	t.Run("header", func(t *testing.T) {
		checkCodec(t, drawHeader, (*Header).Encode, func(b []byte) (*Header, error) { h, err := DecodeHeader(b); return &h, err })
	})
	t.Run("node", func(t *testing.T) {
		checkCodec(t, drawRow, (*NodeRow).Encode, func(b []byte) (*NodeRow, error) { r, err := DecodeRow(b); return &r, err })
	})
	t.Run("heartbeats", func(t *testing.T) {
		checkCodec(t, drawHeartbeats, EncodeHeartbeats, DecodeHeartbeats)
	})
	t.Run("channel", func(t *testing.T) {
		checkCodec(t, rapid.Make[Channel](), Channel.Encode, DecodeChannel)
	})
}

// Stored bytes live longer than programs: these must never change.
func TestGoldenBytes(t *testing.T) {
	function := Header{ID: "e", Incarnation: 300, Function: "f", Digest: "d", CreatedMS: 1, ClosedMS: -1, DeadlineMS: 64,
		Status: journal.StatusRunning, Events: 2, Tags: []recovery.Tag{{Key: "k", Value: "v"}}, Parent: "p", ParentIncarnation: 3,
		ParentPromise: "p:0", GraceAt: 5, StartRequest: []byte{0xaa}, LastCommit: []byte{0xbb}, LastState: recovery.TaskSuspended,
		Problem: "?", Releases: 6}
	open := function
	open.Open = AppendInline(AppendInline(nil, []byte{0xee}), []byte{0xff, 0})
	ended := function
	ended.Status, ended.Leaf = journal.StatusCompleted, true
	if !ended.SetInline(recovery.Task{ID: "e", Incarnation: 300, State: recovery.TaskFulfilled, Version: 7, Target: Target("f", "d")}, nil, AppendInline(AppendInline(nil, []byte{0xee}), []byte{0xff, 0})) {
		t.Fatal("the journal does not fit")
	}
	settled, p := ended, recovery.Promise{ID: "e", Incarnation: 300, State: recovery.PromiseRejected, Value: []byte{0xee}, Tags: ended.Tags, Target: Target("f", "d"),
		TimeoutAt: 64, CreatedAt: 1, SettledAt: -1}
	failed := journal.AppendEntry(nil, journal.Entry{Event: journal.ExecutionFailed{Error: []byte{0xee}}})
	settled.Status = journal.StatusFailed
	if !settled.SetInline(recovery.Task{ID: "e", Incarnation: 300, State: recovery.TaskFulfilled, Version: 7, Target: Target("f", "d")}, &p, AppendInline(AppendInline(nil, []byte{0xff}), failed)) {
		t.Fatal("the journal does not fit")
	}
	graph := function
	graph.Kind, graph.Generation, graph.Former, graph.Wave, graph.GraphAt = KindGraph, 1, 2, 3, 4
	row := NodeRow{Status: reduction.StatusWaiting, Signal: "s", Child: 1, Generation: MaxGeneration, Attempt: 1000, Started: 1,
		Ended: 2, RetryAt: 3, Wave: 4, Kept: true, Propagated: true, From: 5, Failure: []byte("f"), Output: []byte("o")}
	const header = "010165ac020166016402018001010201016b017601700303703a300a01aa01bb03013f06"
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"header of a function":   {function.Encode(), header},
		"header of a graph":      {graph.Encode(), header + "0101020308"},
		"node":                   {row.Encode(), "0106017301ffffff01e8070204060403050166016f"},
		"heartbeats":             {EncodeHeartbeats([]StepHeartbeat{{Child: 1, Name: "s", Attempt: 2, AtMS: 3, Details: []byte("d")}}), "01010173020601" + "64"},
		"channel":                {Channel{Epoch: 300, Last: 7}.Encode(), "ac0207"},
		"channel with bytes":     {Channel{Epoch: 300, Last: 7, Bytes: 200}.Encode(), "ac0207c801"},
		"open listing":           {ListingOpen("f"), "66"},
		"closed listing":         {ListingClosed(&Header{Function: "f", ClosedMS: 5, Incarnation: 7, Events: 2}), "01660a"},
		"listing of a leaf":      {ListingClosed(&Header{Function: "f", ClosedMS: 5, Incarnation: 7, Events: 2, HeaderMore: HeaderMore{Leaf: true}}), "01660a" + "0702"},
		"header while open":      {open.Encode(), header + "0000000000" + "2c05" + "01ee" + "02ff00"},
		"header with a journal":  {ended.Encode(), strings.Replace(header, "80010102", "80010402", 1) + "0000000000" + "2a01" + "2b07" + "0701" + "01ee" + "02ff00"},
		"listing with a journal": {ListingClosed(&ended), "016601" + "ac0202" + "01"},
		"header with a promise":  {settled.Encode(), strings.Replace(header, "80010102", "80010502", 1) + "0000000000" + "2a01" + "2b0a" + "0703" + "01ff" + "0503000001ee"},
		"listing with a promise": {ListingClosed(&settled), "016601" + "ac0202" + "02"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

func FuzzNodeRow(f *testing.F) {
	f.Add((&NodeRow{Status: reduction.StatusCompleted, Child: 3, Output: []byte("{}")}).Encode())
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		row, err := DecodeRow(b)
		if err == nil && !bytes.Equal(row.Encode(), b) {
			t.Errorf("%x is read as %+v, which is written as %x", b, row, row.Encode())
		}
	})
}

// A damaged value is named by its kind and key, and one of another object counts as damaged.
func TestDamageNamesTheKey(t *testing.T) {
	h := &Header{ID: "other"}
	for what, value := range map[string][]byte{"damaged": {9}, "misplaced": h.Encode()} {
		r := NewMemReader()
		r.Apply([]Write{{Key: keys.Of(keys.Header, "ns", "e"), Value: value}})
		_, ok, err := ReadHeader(r, "ns", "e")
		var damage *CorruptError
		if ok || !errors.As(err, &damage) || damage.What != "execution header" || !bytes.Equal(damage.Key, keys.Of(keys.Header, "ns", "e")) {
			t.Errorf("%s: %t, %v", what, ok, err)
		}
	}
}
