package recovery

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Stored bytes live longer than programs: these must never change.
func TestGoldenBytes(t *testing.T) {
	full := Promise{ID: "order-42:0.3", Incarnation: 300, State: PromiseRejectedTimedout, Param: []byte("in"),
		Value: []byte{0, 255}, Tags: []Tag{{"a", ""}, {"b", "2"}}, Target: "w", Timer: true, External: true,
		TimeoutAt: 1700000000000, CreatedAt: 1, SettledAt: -1, DelayUntil: 64}
	task := Task{ID: "order-42", Incarnation: 300, State: TaskAcquired, Version: 7, PID: "p", TTL: 60000,
		LeaseAt: 1700000000000, RetryAt: math.MaxInt64, Resumes: []string{"", "a", "b"}, Target: "w"}
	for name, tc := range map[string]struct{ got, want string }{
		"promise":       {hex.EncodeToString(AppendPromise(nil, full)), "0105030c6f726465722d34323a302e33ac020177" + "80a0abfef962" + "02" + "01" + "8001" + "02" + "016100" + "01620132" + "02696e" + "0200ff"},
		"least promise": {hex.EncodeToString(AppendPromise(nil, Promise{State: PromisePending})), "01010000000000000000000000"},
		"task":          {hex.EncodeToString(AppendTask(nil, task)), "0102086f726465722d3432ac02070170c0a907" + "80a0abfef962" + "feffffffffffffffff01" + "0177" + "03" + "00" + "0161" + "0162"},
		"least task":    {hex.EncodeToString(AppendTask(nil, Task{State: TaskPending})), "01010000000000000000" + "00"},
		"released task": {hex.EncodeToString(AppendTask(nil, Task{State: TaskPending, Releases: 1, ReleasedAt: 64})), "02010000000000000000" + "00" + "01" + "8001"},
		"formed value":  {hex.EncodeToString(AppendOutcome(nil, Outcome{Data: []byte("v"), Form: DataText, Headers: []Tag{{"a", "b"}}})), "0201" + "01" + "01610162" + "76"},
		"value":         {hex.EncodeToString(AppendOutcome(nil, Outcome{Data: []byte("v")})), "0076"},
		"no value":      {hex.EncodeToString(AppendOutcome(nil, Outcome{})), "00"},
		"failure":       {hex.EncodeToString(AppendOutcome(nil, Outcome{Failure: &Failure{"T", "m", []byte("d"), true}})), "010154016d016401"},
		"least failure": {hex.EncodeToString(AppendOutcome(nil, Outcome{Failure: &Failure{}})), "0100000000"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, tc.got, tc.want)
		}
	}
	if p, err := DecodePromise(AppendPromise(nil, full)); err != nil || !reflect.DeepEqual(p, full) {
		t.Errorf("got %+v, %v", p, err)
	}
	if got, err := DecodeTask(AppendTask(nil, task)); err != nil || !reflect.DeepEqual(got, task) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The names and numbers of the states never change either.
func TestStateNames(t *testing.T) {
	for n, name := range []string{"invalid", "pending", "resolved", "rejected", "rejected_canceled", "rejected_timedout", "invalid"} {
		s := PromiseState(n)
		if s.String() != name {
			t.Errorf("promise state %d is %s, want %s", n, s, name)
		}
		parsed, ok := ParsePromiseState(name)
		if ok != (name != "invalid") || (ok && parsed != s) {
			t.Errorf("%s parses as %d, %v", name, parsed, ok)
		}
		if s.Settled() != (n >= 2 && n <= 5) || s.Settable() != (n >= 2 && n <= 4) {
			t.Errorf("%s: settled %v, settable %v", s, s.Settled(), s.Settable())
		}
	}
	for n, name := range []string{"invalid", "pending", "acquired", "suspended", "halted", "fulfilled", "invalid"} {
		s := TaskState(n)
		if s.String() != name {
			t.Errorf("task state %d is %s, want %s", n, s, name)
		}
		parsed, ok := ParseTaskState(name)
		if ok != (name != "invalid") || (ok && parsed != s) {
			t.Errorf("%s parses as %d, %v", name, parsed, ok)
		}
	}
}

var (
	genText = rapid.StringN(0, 5, 20)
	genTime = rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 300))
	genBlob = rapid.Custom(func(t *rapid.T) []byte {
		// Empty decodes as nil; they are the same value.
		if b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "blob"); len(b) > 0 {
			return b
		}
		return nil
	})
	genPromise = rapid.Custom(func(t *rapid.T) Promise {
		keys := rapid.SliceOfNDistinct(genText, 0, 4, rapid.ID).Draw(t, "keys")
		slices.Sort(keys)
		var tags []Tag
		for _, k := range keys {
			tags = append(tags, Tag{k, genText.Draw(t, "value")})
		}
		return Promise{
			ID:          genText.Draw(t, "id"),
			Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			State:       PromiseState(rapid.IntRange(1, 5).Draw(t, "state")),
			Param:       genBlob.Draw(t, "param"),
			Value:       genBlob.Draw(t, "value"),
			Tags:        tags,
			Target:      genText.Draw(t, "target"),
			Timer:       rapid.Bool().Draw(t, "timer"),
			External:    rapid.Bool().Draw(t, "external"),
			TimeoutAt:   genTime.Draw(t, "timeout"),
			CreatedAt:   genTime.Draw(t, "created"),
			SettledAt:   genTime.Draw(t, "settled"),
			DelayUntil:  genTime.Draw(t, "delay"),
		}
	})
	genTask = rapid.Custom(func(t *rapid.T) Task {
		resumes := rapid.SliceOfNDistinct(genText, 0, 4, rapid.ID).Draw(t, "resumes")
		slices.Sort(resumes)
		if len(resumes) == 0 {
			resumes = nil
		}
		releases, releasedAt := rapid.Uint64Range(0, 3).Draw(t, "releases"), int64(0)
		if releases > 0 {
			releasedAt = genTime.Draw(t, "released")
		}
		return Task{
			ID:          genText.Draw(t, "id"),
			Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			State:       TaskState(rapid.IntRange(1, 5).Draw(t, "state")),
			Version:     rapid.Uint64().Draw(t, "version"),
			PID:         genText.Draw(t, "pid"),
			TTL:         genTime.Draw(t, "ttl"),
			LeaseAt:     genTime.Draw(t, "lease"),
			RetryAt:     genTime.Draw(t, "retry"),
			Resumes:     resumes,
			Target:      genText.Draw(t, "target"),
			Releases:    releases,
			ReleasedAt:  releasedAt,
		}
	})
	genOutcome = rapid.Custom(func(t *rapid.T) Outcome {
		if rapid.Bool().Draw(t, "ok") {
			o := Outcome{Data: genBlob.Draw(t, "data")}
			if form := DataForm(rapid.IntRange(0, 2).Draw(t, "form")); form.Fits(o.Data) {
				o.Form = form
			}
			for _, k := range slices.Sorted(slices.Values(rapid.SliceOfNDistinct(genText, 0, 2, rapid.ID).Draw(t, "headers"))) {
				o.Headers = append(o.Headers, Tag{k, genText.Draw(t, "header")})
			}
			return o
		}
		return Outcome{Failure: &Failure{genText.Draw(t, "type"), genText.Draw(t, "message"),
			genBlob.Draw(t, "details"), rapid.Bool().Draw(t, "final")}}
	})
)

// roundTrip: a value comes back equal; its bytes follow a prefix and share nothing with the result; and
// no proper part of them, nor anything longer, is an encoding.
func roundTrip[V any](t *testing.T, gen *rapid.Generator[V], add func([]byte, V) []byte, decode func([]byte) (V, error), openEnded func(V) bool) {
	rapid.Check(t, func(t *rapid.T) {
		v := gen.Draw(t, "v")
		b := add([]byte("prefix"), v)[len("prefix"):]
		whole := slices.Clone(b)
		got, err := decode(b)
		for i := range b {
			b[i] ^= 0xff
		}
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Fatalf("got %+v, %v", got, err)
		}
		if openEnded(v) {
			return
		}
		for n := range whole {
			if _, err := decode(whole[:n]); err == nil {
				t.Fatalf("%x is accepted without its last %d bytes", whole, len(whole)-n)
			}
		}
		if _, err := decode(append(whole, 0)); err == nil {
			t.Fatal("it is accepted with a byte after the end")
		}
	})
}

func TestRoundTrip(t *testing.T) {
	t.Run("promise", func(t *testing.T) {
		roundTrip(t, genPromise, AppendPromise, DecodePromise, func(Promise) bool { return false })
	})
	t.Run("task", func(t *testing.T) {
		roundTrip(t, genTask, AppendTask, DecodeTask, func(Task) bool { return false })
	})
	t.Run("outcome", func(t *testing.T) {
		roundTrip(t, genOutcome, AppendOutcome, DecodeOutcome, func(o Outcome) bool { return o.Failure == nil })
	})
}

func TestEmptyIsNil(t *testing.T) {
	a := AppendPromise(nil, Promise{State: PromisePending, Param: []byte{}, Value: []byte{}, Tags: []Tag{}})
	b := AppendPromise(nil, Promise{State: PromisePending})
	if !bytes.Equal(a, b) {
		t.Errorf("%x and %x", a, b)
	}
}

func TestCorrupt(t *testing.T) {
	promise := func(change func(b []byte) []byte) []byte {
		return change(AppendPromise(nil, Promise{ID: "a", State: PromisePending, Tags: []Tag{{"k", "v"}, {"l", ""}}}))
	}
	task := func(change func(b []byte) []byte) []byte {
		return change(AppendTask(nil, Task{ID: "a", State: TaskPending, Resumes: []string{"k", "l"}}))
	}
	set := func(i int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { return slices.Concat(b[:i], v, b[i+1:]) }
	}
	for name, tc := range map[string]struct {
		what   string
		b      []byte
		offset int
		detail string
	}{
		"promise, empty":              {"promise", nil, 0, "ends too early"},
		"promise, layout":             {"promise", promise(set(0, 2)), 0, "unknown layout"},
		"promise, state 0":            {"promise", promise(set(1, 0)), 1, "unknown state"},
		"promise, state 6":            {"promise", promise(set(1, 6)), 1, "unknown state"},
		"promise, flags":              {"promise", promise(set(2, 4)), 2, "unknown flags"},
		"promise, long length":        {"promise", promise(set(3, 200, 1)), 3, "length points past the end"},
		"promise, huge length":        {"promise", promise(set(3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1)), 3, "length points past the end"},
		"promise, integer too wide":   {"promise", promise(set(3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2)), 3, "longer than 64 bits"},
		"promise, integer not least":  {"promise", promise(set(5, 0x80, 0)), 5, "longer than needed"},
		"promise, integer cut":        {"promise", []byte{1, 1, 0, 0x80}, 4, "ends too early"},
		"promise, count":              {"promise", promise(set(11, 100)), 11, "count is larger"},
		"promise, same tag twice":     {"promise", promise(set(17, 'k')), 16, "not in ascending order"},
		"promise, bytes after":        {"promise", promise(func(b []byte) []byte { return append(b, 9) }), 21, "bytes after the end"},
		"task, layout":                {"task", task(set(0, 0)), 0, "unknown layout"},
		"task, state 0":               {"task", task(set(1, 0)), 1, "unknown state"},
		"task, state 6":               {"task", task(set(1, 6)), 1, "unknown state"},
		"task, count":                 {"task", task(set(11, 5)), 11, "count is larger"},
		"task, resumes not ascending": {"task", task(set(15, 'a')), 14, "not in ascending order"},
		"task, same resume twice":     {"task", task(set(15, 'k')), 14, "not in ascending order"},
		"task, bytes after":           {"task", task(func(b []byte) []byte { return append(b, 9) }), 16, "bytes after the end"},
		"outcome, empty":              {"outcome", nil, 0, "ends too early"},
		"outcome, kind":               {"outcome", []byte{3}, 0, "unknown kind"},
		"outcome, form":               {"outcome", []byte{2, 3, 0}, 1, "does not fit"},
		"outcome, no form":            {"outcome", []byte{2, 0, 0, 'x'}, 1, "does not fit"},
		"outcome, empty and not":      {"outcome", []byte{2, 2, 0, 'x'}, 1, "does not fit"},
		"outcome, empty text":         {"outcome", []byte{2, 1, 0}, 1, "does not fit"},
		"outcome, header twice":       {"outcome", []byte{2, 1, 2, 1, 'a', 0, 1, 'a', 0, 'x'}, 6, "not in ascending order"},
		"task, no releases":           {"task", []byte{2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 11, "no releases"},
		"outcome, boolean":            {"outcome", []byte{1, 0, 0, 0, 2}, 4, "neither 0 nor 1"},
		"outcome, cut":                {"outcome", []byte{1, 0, 0, 0}, 4, "ends too early"},
		"outcome, bytes after":        {"outcome", []byte{1, 0, 0, 0, 1, 0}, 5, "bytes after the end"},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			var got any
			var none any
			switch tc.what {
			case "promise":
				got, err = DecodePromise(tc.b)
				none = Promise{}
			case "task":
				got, err = DecodeTask(tc.b)
				none = Task{}
			case "outcome":
				got, err = DecodeOutcome(tc.b)
				none = Outcome{}
			}
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("got %v, %v", got, err)
			}
			if corrupt.What != tc.what || corrupt.Offset != tc.offset || !strings.Contains(corrupt.Error(), tc.detail) {
				t.Errorf("got %v, want offset %d and %q", corrupt, tc.offset, tc.detail)
			}
			if !reflect.DeepEqual(got, none) {
				t.Errorf("half decoded: %+v", got)
			}
		})
	}
}

// Decoded bytes encode to the same bytes, so no two encodings mean the same.
func fuzzDecode[V any](f *testing.F, add func([]byte, V) []byte, decode func([]byte) (V, error), seeds ...V) {
	for _, v := range seeds {
		f.Add(add(nil, v))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decode(b)
		var corrupt *CorruptError
		switch {
		case err == nil:
			if again := add(nil, v); !bytes.Equal(again, b) {
				t.Errorf("%x decodes to %+v, which encodes to %x", b, v, again)
			}
		case !errors.As(err, &corrupt):
			t.Errorf("untyped error %v", err)
		case corrupt.Offset < 0 || corrupt.Offset > len(b):
			t.Errorf("offset %d of %d bytes", corrupt.Offset, len(b))
		}
	})
}

func FuzzDecodePromise(f *testing.F) {
	fuzzDecode(f, AppendPromise, DecodePromise, Promise{}, Promise{State: PromisePending},
		Promise{ID: "a:0", Incarnation: 1 << 40, State: PromiseResolved, Param: []byte("p"), Value: []byte("v"), Target: "w",
			Tags: []Tag{{"a", "b"}, {"c", "d"}}, Timer: true, External: true, TimeoutAt: 1 << 50, CreatedAt: -1, SettledAt: 5})
}

func FuzzDecodeTask(f *testing.F) {
	fuzzDecode(f, AppendTask, DecodeTask, Task{}, Task{State: TaskPending},
		Task{ID: "a:0", Incarnation: 1 << 40, State: TaskAcquired, Version: 1 << 20, PID: "p", TTL: 60000, LeaseAt: 1 << 50,
			RetryAt: -1, Resumes: []string{"a", "b"}, Target: "w"})
}

func FuzzDecodeOutcome(f *testing.F) {
	fuzzDecode(f, AppendOutcome, DecodeOutcome, Outcome{}, Outcome{Data: []byte("v")},
		Outcome{Failure: &Failure{Type: "t", Message: "m", Details: []byte("d"), NonRetryable: true}})
}
