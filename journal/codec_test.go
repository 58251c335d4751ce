package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"perdure/id"
)

var update = flag.Bool("update", false, "rewrite the golden files; stored journals depend on them")

// golden holds an entry per event, and a few per event whose encoding has cases.
var golden = []struct {
	name  string
	entry Entry
}{
	{"ExecutionStarted", Entry{0, 1700000000000, ExecutionStarted{"sha256:d1", []byte(`{"n":1}`), "order-41:7.2", "key-1"}}},
	{"ExecutionStarted root", Entry{0, 0, ExecutionStarted{}}},
	{"ExecutionCompleted", Entry{24, 1, ExecutionCompleted{[]byte("done")}}},
	{"ExecutionFailed", Entry{300, -1, ExecutionFailed{[]byte{0, 255}}}},
	{"CancelRequested", Entry{1, 64, CancelRequested{"enough"}}},
	{"ExecutionCancelled", Entry{2, -64, ExecutionCancelled{"timed out"}}},
	{"InvokeScheduled function", Entry{1, 2, InvokeScheduled{"order-42:0", InvokeFunction, "charge", []byte("in"), "retry=3"}}},
	{"InvokeScheduled http", Entry{1, 2, InvokeScheduled{"order-42:0", InvokeHTTP, "GET", nil, ""}}},
	{"InvokeScheduled step", Entry{1, 2, InvokeScheduled{"order-42:0", InvokeStep, "f", nil, ""}}},
	{"InvokeScheduled send", Entry{1, 2, InvokeScheduled{"order-42:0", InvokeSend, "f", nil, ""}}},
	{"InvokeScheduled signal", Entry{1, 2, InvokeScheduled{"order-42:0", InvokeSignal, "f", nil, ""}}},
	{"InvokeStarted", Entry{1 << 40, 3, InvokeStarted{"order-42:0.3", 4294967295}}},
	{"InvokeCompleted", Entry{4, 3, InvokeCompleted{"order-42:0", []byte("result"), 1}}},
	{"InvokeRetrying", Entry{5, 3, InvokeRetrying{"order-42:0", 2, []byte("err"), 1700000000123}}},
	{"RandomGenerated", Entry{6, 3, RandomGenerated{"order-42:1", []byte{0x1a, 0x2b}}}},
	{"TimeRecorded", Entry{7, 3, TimeRecorded{"order-42:2", 1700000000456}}},
	{"TimeRecorded extremes", Entry{1<<64 - 1, 1<<63 - 1, TimeRecorded{"order-42:2", -1 << 63}}},
	{"TimerScheduled", Entry{8, 3, TimerScheduled{"order-42:3", 86400000, 1700086400000}}},
	{"TimerFired", Entry{9, 3, TimerFired{"order-42:3"}}},
	{"SignalDelivered", Entry{10, 3, SignalDelivered{"approval", []byte("yes"), 1}}},
	{"SignalReceived", Entry{11, 3, SignalReceived{"order-42:4", "approval", []byte("yes"), 300}}},
	{"ExecutionAwaiting single", Entry{12, 3, ExecutionAwaiting{[]id.PromiseID{"order-42:0"}, AwaitSingle, "", ""}}},
	{"ExecutionAwaiting any", Entry{12, 3, ExecutionAwaiting{[]id.PromiseID{"order-42:9", "order-42:10"}, AwaitAny, "", ""}}},
	{"ExecutionAwaiting all", Entry{12, 3, ExecutionAwaiting{[]id.PromiseID{"a:0.2", "a:0.3", "a:0.11"}, AwaitAll, "", ""}}},
	{"ExecutionAwaiting signal", Entry{12, 3, ExecutionAwaiting{[]id.PromiseID{"order-42:4"}, AwaitSignal, "approval", ""}}},
	{"ExecutionAwaiting join set", Entry{12, 3, ExecutionAwaiting{[]id.PromiseID{"order-42:6"}, AwaitJoinSet, "", "order-42:5"}}},
	{"ExecutionResumed", Entry{13, 3, ExecutionResumed{}}},
	{"JoinSetCreated", Entry{14, 3, JoinSetCreated{"order-42:5"}}},
	{"JoinSetSubmitted", Entry{15, 3, JoinSetSubmitted{"order-42:5", "order-42:6"}}},
	{"JoinSetAwaited", Entry{16, 3, JoinSetAwaited{"order-42:5", "order-42:6", []byte("result")}}},
}

// The bytes of stored entries never change: a journal written by any version is read by every later one.
func TestGoldenBytes(t *testing.T) {
	path := filepath.Join("testdata", "entries.golden")
	var lines []string
	kinds := map[Kind]bool{}
	for _, g := range golden {
		kinds[g.entry.Event.Kind()] = true
		lines = append(lines, g.name+" = "+hex.EncodeToString(AppendEntry(nil, g.entry)))
	}
	if len(kinds) != 20 {
		t.Fatalf("golden entries for %d kinds of events", len(kinds))
	}
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(stored) != got {
		t.Errorf("the encoding has changed:\n%s\nstored:\n%s", got, stored)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(stored)), "\n") {
		name, text, _ := strings.Cut(line, " = ")
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := DecodeEntry(data)
		if err != nil || !reflect.DeepEqual(entry, golden[i].entry) {
			t.Errorf("%s: read %#v, %v; want %#v", name, entry, err, golden[i].entry)
		}
	}
}

// AppendEntry appends, and DecodeEntry keeps nothing of what it read.
func TestDecodeCopies(t *testing.T) {
	for _, g := range golden {
		data := AppendEntry([]byte("prefix"), g.entry)
		if !bytes.HasPrefix(data, []byte("prefix")) {
			t.Fatalf("%s: the prefix is gone", g.name)
		}
		data = data[len("prefix"):]
		entry, err := DecodeEntry(data)
		if err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		clear(data)
		if !reflect.DeepEqual(entry, g.entry) {
			t.Errorf("%s: overwriting the bytes made it %#v", g.name, entry)
		}
	}
}

// Every prefix of an entry is corrupt, and so is an entry with a byte more.
func TestDecodeWantsTheWholeEntry(t *testing.T) {
	for _, g := range golden {
		data := AppendEntry(nil, g.entry)
		for n := range data {
			if entry, err := DecodeEntry(data[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes are %#v", g.name, n, len(data), entry)
			}
		}
		corrupt(t, append(data[:len(data):len(data)], 0), "1 trailing bytes")
	}
}

func corrupt(t *testing.T, data []byte, detail string) {
	t.Helper()
	entry, err := DecodeEntry(data)
	var c *CorruptError
	if !errors.As(err, &c) || !strings.Contains(c.Detail, detail) || !strings.Contains(err.Error(), detail) {
		t.Errorf("%x is %#v, %v; want %q", data, entry, err, detail)
		return
	}
	if c.Offset < 0 || c.Offset > len(data) || entry.Event != nil || entry.Seq != 0 {
		t.Errorf("%x: offset %d, entry %#v", data, c.Offset, entry)
	}
}

func TestDecodeRefuses(t *testing.T) {
	// fields is an entry of a kind, sequence number and time 0, with these fields.
	fields := func(kind Kind, fields string) []byte { return []byte(string(rune(kind)) + "\x00\x00" + fields) }
	for _, c := range []struct {
		data   []byte
		detail string
	}{
		{nil, "unexpected end"},
		{[]byte{0, 0, 0}, "unknown kind"},
		{[]byte{21, 0, 0}, "unknown kind"},
		{[]byte{255, 0, 0}, "unknown kind"},
		{[]byte{17}, "unexpected end in a number"},
		{[]byte{17, 0x80}, "unexpected end in a number"},
		{[]byte{17, 0x80, 0x00, 0}, "shortest form"},
		{[]byte{17, 0x81, 0x80, 0x00, 0}, "shortest form"},
		{[]byte{17, 0, 0x80, 0x00}, "shortest form"},
		{append([]byte{17}, bytes.Repeat([]byte{0xff}, 11)...), "above 64 bits"},
		{fields(KindInvokeStarted, "\x03a:0\x80\x80\x80\x80\x10"), "above 32 bits"},
		{fields(KindTimerFired, "\x04a:0"), "beyond the end"},
		{fields(KindTimerFired, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a:0"), "beyond the end"},
		{fields(KindTimerFired, "\x00"), "is empty"},
		{fields(KindTimerFired, "\x04a:00"), "has path element"},
		{fields(KindJoinSetCreated, "\x02a:"), "has path element"},
		{fields(KindExecutionStarted, "\x00\x00\x02a:\x00"), "has path element"},
		{fields(KindInvokeScheduled, "\x03a:0\x00\x00\x00\x00"), "unknown kind of invocation"},
		{fields(KindInvokeScheduled, "\x03a:0\x06\x00\x00\x00"), "unknown kind of invocation"},
		{fields(KindExecutionAwaiting, "\x01\x03a:0\x00"), "unknown kind of wait"},
		{fields(KindExecutionAwaiting, "\x01\x03a:0\x06"), "unknown kind of wait"},
		{fields(KindExecutionAwaiting, "\x7f\x03a:0\x01"), "do not fit"},
		{fields(KindExecutionAwaiting, "\x02\x03a:1\x03a:0\x02"), "ascending"},
		{fields(KindExecutionAwaiting, "\x02\x03a:1\x03a:1\x02"), "ascending"},
		{fields(KindExecutionAwaiting, "\x02\x03a:0\x03b:1\x02"), "ascending"},
		{fields(KindExecutionAwaiting, "\x02\x03a:0\x05a:1.2\x02"), "ascending"},
		{fields(KindExecutionAwaiting, "\x02\x01a\x03a:1\x02"), "ascending"},
	} {
		corrupt(t, c.data, c.detail)
	}
}

func TestCorruptErrorNamesThePlace(t *testing.T) {
	_, err := DecodeEntry([]byte{byte(KindTimerFired), 0, 0, 4, 'a', ':', '0', '0'})
	want := `journal: corrupt entry: TimerFired at byte 8: id "a:00" ` +
		`has path element "00", not a uint32 without leading zeros`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Decoded bytes encode to the same bytes: an entry has one encoding.
func FuzzDecodeEntry(f *testing.F) {
	for _, g := range golden {
		f.Add(AppendEntry(nil, g.entry))
	}
	f.Add([]byte{17, 0x80, 0x00, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, err := DecodeEntry(data)
		if err != nil {
			var c *CorruptError
			if !errors.As(err, &c) || c.Offset > len(data) || entry.Event != nil {
				t.Fatalf("%x: %#v, %#v", data, entry, err)
			}
			return
		}
		if again := AppendEntry(nil, entry); !bytes.Equal(again, data) {
			t.Fatalf("%x is %#v, which encodes to %x", data, entry, again)
		}
	})
}

// An encoded entry decodes to an equal one, for any fields.
func FuzzAppendEntry(f *testing.F) {
	for kind := uint8(1); kind <= 20; kind++ {
		f.Add(kind, uint64(kind), int64(-5), uint32(3), uint32(9), "text", []byte("payload"))
	}
	f.Fuzz(func(t *testing.T, kind uint8, seq uint64, ms int64, n, m uint32, text string, payload []byte) {
		entry := Entry{Seq: seq, Time: ms, Event: anyEvent(Kind(kind), ms, n, m, text, payload)}
		if entry.Event == nil {
			return
		}
		data := AppendEntry(nil, entry)
		back, err := DecodeEntry(data)
		if err != nil {
			t.Fatalf("%#v encodes to %x: %v", entry, data, err)
		}
		entry.Event = withoutEmpty(entry.Event)
		if !reflect.DeepEqual(back, entry) {
			t.Fatalf("%#v was read back as %#v", entry, back)
		}
	})
}

// anyEvent fills the fields of a kind of event, within their types; nil for no kind.
func anyEvent(k Kind, ms int64, n, m uint32, text string, payload []byte) Event {
	p, q := kid(n), kid(n).Child(m)
	switch k {
	case KindExecutionStarted:
		if n%2 == 0 {
			return ExecutionStarted{ComponentDigest: text, Input: payload, IdempotencyKey: text}
		}
		return ExecutionStarted{ComponentDigest: text, Input: payload, Parent: q, IdempotencyKey: text}
	case KindExecutionCompleted:
		return ExecutionCompleted{payload}
	case KindExecutionFailed:
		return ExecutionFailed{payload}
	case KindCancelRequested:
		return CancelRequested{text}
	case KindExecutionCancelled:
		return ExecutionCancelled{text}
	case KindInvokeScheduled:
		return InvokeScheduled{p, InvokeKind(1 + m%5), text, payload, text}
	case KindInvokeStarted:
		return InvokeStarted{q, m}
	case KindInvokeCompleted:
		return InvokeCompleted{p, payload, m}
	case KindInvokeRetrying:
		return InvokeRetrying{p, m, payload, ms}
	case KindRandomGenerated:
		return RandomGenerated{p, payload}
	case KindTimeRecorded:
		return TimeRecorded{q, ms}
	case KindTimerScheduled:
		return TimerScheduled{p, ms, -ms}
	case KindTimerFired:
		return TimerFired{q}
	case KindSignalDelivered:
		return SignalDelivered{text, payload, uint64(n) << 20}
	case KindSignalReceived:
		return SignalReceived{p, text, payload, uint64(m) << 20}
	case KindExecutionAwaiting:
		on := []id.PromiseID{eid.Child(m)}
		if m < n {
			on = append(on, eid.Child(n))
		}
		switch wait := AwaitKind(1 + n%5); wait {
		case AwaitSignal:
		case AwaitJoinSet:
			return ExecutionAwaiting{On: on, Wait: wait, Set: JoinSetID(q)}
		default:
			return ExecutionAwaiting{On: on, Wait: wait}
		}
		return ExecutionAwaiting{On: on, Wait: AwaitSignal, Signal: text}
	case KindExecutionResumed:
		return ExecutionResumed{}
	case KindJoinSetCreated:
		return JoinSetCreated{JoinSetID(q)}
	case KindJoinSetSubmitted:
		return JoinSetSubmitted{JoinSetID(p), q}
	case KindJoinSetAwaited:
		return JoinSetAwaited{JoinSetID(q), p, payload}
	}
	return nil
}
