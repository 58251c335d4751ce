package keys

import (
	"bytes"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The numbers of the families, for good: a state on disk is read by them.
func TestTable(t *testing.T) {
	want := []struct {
		number byte
		name   string
	}{
		{0x01, "meta"}, {0x10, "promise"}, {0x11, "task"}, {0x12, "callback"}, {0x13, "awaited-by"}, {0x14, "listener"}, {0x15, "notify"}, {0x16, "unblock"}, {0x17, "schedule"},
		{0x20, "header"}, {0x21, "journal"}, {0x22, "graph"}, {0x23, "node"}, {0x24, "latch"}, {0x25, "heartbeat"}, {0x26, "remains"}, {0x28, "entity"}, {0x29, "entity-item"}, {0x2a, "holder"}, {0x30, "deadline"}, {0x31, "ready"}, {0x32, "stuck"}, {0x40, "outbox"}, {0x41, "channel"},
		{0x42, "inbox"}, {0x50, "reply"}, {0x51, "reply-age"}, {0x60, "visibility"}, {0x70, "function"},
	}
	got := Table()
	if len(got) != len(want) {
		t.Fatalf("%d families, the table pins %d", len(got), len(want))
	}
	for i, w := range want {
		if byte(got[i].Family) != w.number || got[i].Name != w.name {
			t.Errorf("family %#x %q, must be %#x %q", byte(got[i].Family), got[i].Name, w.number, w.name)
		}
	}
	if DeadlinePromise != 1 || DeadlineLease != 2 || DeadlineRetry != 3 || DeadlineGrace != 4 || DeadlineGraph != 5 || DeadlineEntity != 6 || DeadlineAnswer != 7 || DeadlineSweep != 8 || DeadlineChildren != 9 || DeadlineNotify != 10 || DeadlinePurge != 12 || DeadlineUnblock != 13 {
		t.Error("the kinds of deadlines have other numbers")
	}
	if Open != 1 || Completed != 2 || Failed != 3 || Cancelled != 4 {
		t.Error("the classes of the listing have other numbers")
	}
	// A tick settles promises before it gives tasks back (recovery protocol, sweep order).
	if !slices.Equal(DeadlineKinds, []DeadlineKind{DeadlinePromise, DeadlineGrace, DeadlineGraph, DeadlineEntity, DeadlineLease, DeadlineRetry, DeadlineAnswer, DeadlineSweep, DeadlineChildren, DeadlineNotify, DeadlinePurge, DeadlineUnblock}) {
		t.Errorf("a tick's order is %v", DeadlineKinds)
	}
}

// The bytes of one key of every family, for good.
func TestGoldenKeys(t *testing.T) {
	for _, c := range []struct {
		name string
		key  []byte
		want string
	}{
		{"meta", MetaKey("applied"), "01 6170706c696564"},
		{"promise", Of(Promise, "ns", "a:0"), "10 6e730001 613a300001"},
		{"task with a NUL", Of(Task, "", "a\x00b"), "11 0001 6100ff620001"},
		{"callback", Of(Callback, "n", "a", "b"), "12 6e0001 610001 620001"},
		{"awaited-by", Of(AwaitedBy, "n", "b", "a"), "13 6e0001 620001 610001"},
		{"listener", Of(Listener, "n", "a", "x"), "14 6e0001 610001 780001"},
		{"notify", Of(Notify, "n", "a"), "15 6e0001 610001"},
		{"unblock", Of(Unblock, "n", "x", "a"), "16 6e0001 780001 610001"},
		{"schedule", Of(Schedule, "n", "a"), "17 6e0001 610001"},
		{"header", Of(Header, "n", "a"), "20 6e0001 610001"},
		{"journal", JournalEntry("n", "a", 7, 258), "21 6e0001 610001 0000000000000007 0000000000000102"},
		{"entity", Of(Entity, "n", "a@b"), "28 6e0001 6140620001"},
		{"entry of an entity", EntityItemOf("n", "a@b", Delayed, 258), "29 6e0001 6140620001 03 0000000000000102"},
		{"heartbeat", HeartbeatOf("n", "a", 7), "25 6e0001 610001 0000000000000007"},
		{"remains", Of(Remains, "n", "a"), "26 6e0001 610001"},
		{"holder", HolderOf("n", "a", 7), "2a 6e0001 610001 0000000000000007"},
		{"graph", GraphOf("n", "a", 7), "22 6e0001 610001 0000000000000007"},
		{"node", NodeOf("n", "a", 7, 258), "23 6e0001 610001 0000000000000007 00000102"},
		{"latch", LatchOf("n", "a", 7, "go"), "24 6e0001 610001 0000000000000007 676f0001"},
		{"deadline", DeadlineOf(DeadlineLease, 1000, "n", "a"), "30 02 00000000000003e8 6e0001 610001"},
		{"deadline before the epoch", DeadlineOf(DeadlineLease, -5, "n", "a"), "30 02 0000000000000000 6e0001 610001"},
		{"ready", ReadyOf("n", "f", 1000, "a"), "31 6e0001 660001 00000000000003e8 610001"},
		{"outbox", OutboxOf(3, 1, 9), "40 00000003 0000000000000001 0000000000000009"},
		{"channel", Number(Channel, 3), "41 00000003"},
		{"inbox", Number(Inbox, 3), "42 00000003"},
		{"reply", ReplyOf([]byte{1, 0, 2}), "50 010002"},
		{"reply-age", ReplyAgeOf(1000, []byte{1, 0, 2}), "51 00000000000003e8 010002"},
		{"visibility", VisibilityOf("n", Failed, 1000, "a"), "60 6e0001 03 fffffffffffffc17 610001"},
		{"function", Of(Function, "n", "f"), "70 6e0001 660001"},
	} {
		if got, want := hex.EncodeToString(c.key), strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s is %s, must be %s", c.name, got, want)
		}
	}
}

// text draws strings with many of the bytes that the encoding treats apart.
func text() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 'b', ':', 0xfe, 0xff}), 0, 6).Draw(t, "bytes"))
	})
}

func number() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3), rapid.SampledFrom([]uint64{255, 256, 1<<32 - 1, 1 << 32, math.MaxInt64, math.MaxUint64}))
}

func moment() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, math.MaxInt64), rapid.Int64Range(0, 4))
}

func sign(n int) int { return min(max(n, -1), 1) }

// Parts come back as they went in, and keys sort as the lists of their parts do.
func TestStringsSortAsTheyDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(text(), 1, 3).Draw(t, "a")
		b := rapid.SliceOfN(text(), len(a), len(a)).Draw(t, "b")
		ka, kb := Of(Promise, a...), Of(Promise, b...)
		if got, want := sign(bytes.Compare(ka, kb)), sign(slices.Compare(a, b)); got != want {
			t.Fatalf("%q and %q sort %d, their keys %d", a, b, want, got)
		}
		// No key is a prefix of another object's.
		if !slices.Equal(a, b) && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka)) {
			t.Fatalf("%x and %x: one is a prefix of the other", ka, kb)
		}
		rest := ka[1:]
		for _, part := range a {
			var s string
			var err error
			if s, rest, err = CutString(rest); err != nil || s != part {
				t.Fatalf("%q comes back as %q, %v", part, s, err)
			}
		}
		if len(rest) != 0 {
			t.Fatalf("%x is left", rest)
		}
	})
}

func TestNumbersSortAsTheyDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := number().Draw(t, "a"), number().Draw(t, "b")
		ka, kb := AppendUint64([]byte("x"), a), AppendUint64([]byte("x"), b)
		if (a < b) != (bytes.Compare(ka, kb) < 0) || (a == b) != bytes.Equal(ka, kb) {
			t.Fatalf("%d and %d as %x and %x", a, b, ka, kb)
		}
		if n, rest, err := CutUint64(append(ka[1:], 'r')); n != a || string(rest) != "r" || err != nil {
			t.Fatalf("%d comes back as %d, %q, %v", a, n, rest, err)
		}
	})
}

// Deadlines sort by kind, time, namespace and id; exactly what is due lies within the bounds.
func TestDeadlines(t *testing.T) {
	type deadline struct {
		kind   DeadlineKind
		at     int64
		ns, id string
	}
	draw := func(t *rapid.T, name string) deadline {
		return deadline{DeadlineKind(rapid.IntRange(1, 4).Draw(t, name)), moment().Draw(t, name), text().Draw(t, name), text().Draw(t, name)}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		ka, kb := DeadlineOf(a.kind, a.at, a.ns, a.id), DeadlineOf(b.kind, b.at, b.ns, b.id)
		want := 0
		for _, c := range []int{sign(int(a.kind) - int(b.kind)), compare(a.at, b.at), strings.Compare(a.ns, b.ns), strings.Compare(a.id, b.id)} {
			if want == 0 {
				want = c
			}
		}
		if got := sign(bytes.Compare(ka, kb)); got != want {
			t.Fatalf("%v and %v sort %d, their keys %d", a, b, want, got)
		}
		kind, at, ns, id, err := ParseDeadline(ka)
		if (deadline{kind, at, ns, id}) != a || err != nil {
			t.Fatalf("%v comes back as %v, %v", a, deadline{kind, at, ns, id}, err)
		}
		now := rapid.OneOf(rapid.Just(a.at), rapid.Just(max(a.at-1, 0)), moment()).Draw(t, "now")
		lower, upper := DeadlineBounds(b.kind, now)
		within := bytes.Compare(lower, ka) <= 0 && bytes.Compare(ka, upper) < 0
		if due := a.kind == b.kind && a.at <= now; due != within {
			t.Fatalf("%v at %d: due %v, within the bounds %v", a, now, due, within)
		}
	})
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// A queue is in the order of its numbers, then of the ids; the listing is newest first.
func TestQueuesAndListings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns, fn := text().Draw(t, "namespace"), text().Draw(t, "function")
		a, b := moment().Draw(t, "a"), moment().Draw(t, "b")
		x, y := text().Draw(t, "x"), text().Draw(t, "y")
		byTime, byID := compare(a, b), strings.Compare(x, y)

		ka, kb, prefix := ReadyOf(ns, fn, a, x), ReadyOf(ns, fn, b, y), Of(Ready, ns, fn)
		want := byTime
		if want == 0 {
			want = byID
		}
		if got := sign(bytes.Compare(ka, kb)); got != want || !bytes.HasPrefix(ka, prefix) {
			t.Fatalf("(%d %q) and (%d %q) sort %d, their keys %d", a, x, b, y, want, got)
		}
		if order, id, err := ParseReady(ka, prefix); order != a || id != x || err != nil {
			t.Fatalf("comes back as %d %q, %v", order, id, err)
		}

		ka, kb, prefix = VisibilityOf(ns, Open, a, x), VisibilityOf(ns, Open, b, y), VisibilityPrefix(ns, Open)
		want = -byTime
		if want == 0 {
			want = byID
		}
		if got := sign(bytes.Compare(ka, kb)); got != want || !bytes.HasPrefix(ka, prefix) {
			t.Fatalf("(%d %q) and (%d %q) are listed %d, their keys %d", a, x, b, y, want, got)
		}
		if created, id, err := ParseVisibility(ka, prefix); created != a || id != x || err != nil {
			t.Fatalf("comes back as %d %q, %v", created, id, err)
		}
		if bytes.HasPrefix(VisibilityOf(ns, Completed, a, x), prefix) {
			t.Fatal("one class is listed in another")
		}
	})
}

// A journal's entries lie together, in order, apart from every other journal and incarnation.
func TestJournals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns, id := text().Draw(t, "namespace"), text().Draw(t, "id")
		incarnation, seq := number().Draw(t, "incarnation"), number().Draw(t, "seq")
		prefix, key := JournalPrefix(ns, id, incarnation), JournalEntry(ns, id, incarnation, seq)
		if !bytes.HasPrefix(key, prefix) || !bytes.Equal(key[len(prefix):], AppendUint64(nil, seq)) {
			t.Fatalf("%x below %x", key, prefix)
		}
		ns2, id2, incarnation2 := text().Draw(t, "namespace 2"), text().Draw(t, "id 2"), number().Draw(t, "incarnation 2")
		same := ns == ns2 && id == id2 && incarnation == incarnation2
		if got := bytes.HasPrefix(JournalEntry(ns2, id2, incarnation2, seq), prefix); got != same {
			t.Fatalf("(%q %q %d) below (%q %q %d): %v", ns2, id2, incarnation2, ns, id, incarnation, got)
		}
		epoch := number().Draw(t, "epoch")
		dst := rapid.Uint32().Draw(t, "destination")
		if !bytes.HasPrefix(OutboxOf(dst, epoch, seq), OutboxPrefix(dst, epoch)) || !bytes.HasPrefix(OutboxPrefix(dst, epoch), Number(Outbox, dst)) {
			t.Fatal("a message lies outside of its channel")
		}
	})
}

// After is the least bound of a prefix: everything below the prefix is under it, and nothing else that
// is greater than the prefix.
func TestAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []byte {
			return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7f, 0xfe, 0xff}), 0, 5).Draw(t, name)
		}
		prefix, key := draw("prefix"), draw("key")
		if rapid.Bool().Draw(t, "below") {
			key = append(slices.Clone(prefix), key...)
		}
		kept := slices.Clone(prefix)
		bound := After(prefix)
		if !bytes.Equal(prefix, kept) {
			t.Fatal("the prefix was changed")
		}
		within := bytes.Compare(key, prefix) >= 0 && (bound == nil || bytes.Compare(key, bound) < 0)
		if within != bytes.HasPrefix(key, prefix) {
			t.Fatalf("%x below %x: within [%x, %x) is %v", key, prefix, prefix, bound, within)
		}
	})
}

// Families do not run into each other.
func TestFamiliesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := Table()[rapid.IntRange(0, len(Table())-1).Draw(t, "a")].Family, Table()[rapid.IntRange(0, len(Table())-1).Draw(t, "b")].Family
		ka, kb := Of(a, text().Draw(t, "x")), Of(b, text().Draw(t, "y"))
		if a != b && sign(bytes.Compare(ka, kb)) != sign(int(a)-int(b)) {
			t.Fatalf("%x and %x", ka, kb)
		}
	})
}

func TestRefusals(t *testing.T) {
	for _, bad := range []string{"", "abc", "abc\x00", "abc\x00\x02", "\x00", "\x00\x00", "abc\x00\xff"} {
		if s, rest, err := CutString([]byte(bad)); err == nil {
			t.Errorf("%q is read as %q and %q", bad, s, rest)
		}
	}
	if _, _, err := CutUint64(make([]byte, 7)); err == nil {
		t.Error("a number of seven bytes is read")
	}
	good := DeadlineOf(DeadlinePromise, 5, "n", "a")
	for n := range len(good) {
		if kind, at, ns, id, err := ParseDeadline(good[:n]); err == nil {
			t.Errorf("%x is read as %d %d %q %q", good[:n], kind, at, ns, id)
		}
	}
	if _, _, _, _, err := ParseDeadline(Of(Promise, "n", "a")); err == nil {
		t.Error("a promise is read as a deadline")
	}
	prefix := Of(Ready, "n", "f")
	good = ReadyOf("n", "f", 5, "a")
	for n := range len(good) {
		if order, id, err := ParseReady(good[:n], prefix); err == nil {
			t.Errorf("%x is read as %d %q", good[:n], order, id)
		}
	}
	prefix = VisibilityPrefix("n", Open)
	good = VisibilityOf("n", Open, 5, "a")
	for n := range len(good) {
		if created, id, err := ParseVisibility(good[:n], prefix); err == nil {
			t.Errorf("%x is read as %d %q", good[:n], created, id)
		}
	}
}

// A parser accepts only the canonical key of its parts, and refuses all other bytes without a panic.
func FuzzParse(f *testing.F) {
	for _, seed := range [][]byte{
		DeadlineOf(DeadlineLease, 5, "n", "a\x00b"), ReadyOf("n", "f", 1<<40, "a"), VisibilityOf("n", Failed, 7, "a:0"),
		Of(Promise, "n", "a"), {}, {byte(Deadline)}, {byte(Deadline), 1, 0, 0}, []byte("\x00\xff\x00\x01"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, rest, err := CutString(b); err == nil {
			if again := append(AppendString(nil, s), rest...); !bytes.Equal(again, b) {
				t.Fatalf("%x is read as %q, which is %x", b, s, again)
			}
		}
		if n, rest, err := CutUint64(b); err == nil && !bytes.Equal(append(AppendUint64(nil, n), rest...), b) {
			t.Fatalf("%x is read as %d", b, n)
		}
		// Bytes after the last part are ignored, so a key's parts give at least its beginning.
		if kind, at, ns, id, err := ParseDeadline(b); err == nil && at >= 0 && !bytes.HasPrefix(b, DeadlineOf(kind, at, ns, id)) {
			t.Fatalf("%x is read as %d %d %q %q", b, kind, at, ns, id)
		}
		ready := Of(Ready, "n", "f")
		if order, id, err := ParseReady(append(slices.Clone(ready), b...), ready); err == nil && order >= 0 &&
			!bytes.HasPrefix(append(slices.Clone(ready), b...), ReadyOf("n", "f", order, id)) {
			t.Fatalf("%x is read as %d %q", b, order, id)
		}
		listed := VisibilityPrefix("n", Open)
		if created, id, err := ParseVisibility(append(slices.Clone(listed), b...), listed); err == nil &&
			!bytes.HasPrefix(append(slices.Clone(listed), b...), VisibilityOf("n", Open, created, id)) {
			t.Fatalf("%x is read as %d %q", b, created, id)
		}
	})
}
