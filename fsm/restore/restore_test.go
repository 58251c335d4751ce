package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

const ns = "default"

// Every family of keys has a rule.
func TestRestoreKnowsEveryFamily(t *testing.T) {
	for _, row := range keys.Table() {
		if families[row.Family] == nil {
			t.Errorf("nothing is said of %s rows", row.Name)
		}
	}
	if len(families) != len(keys.Table()) {
		t.Errorf("rules of %d families, there are %d", len(families), len(keys.Table()))
	}
}

// idOf is an id of a partition of two, and of another one of so many, that begins with name.
func idOf(t *testing.T, name string, partition, of uint32) string {
	t.Helper()
	for n := range 10_000 {
		if objectID := fmt.Sprint(name, n); state.PartitionOf(ns, objectID, of) == partition {
			return objectID
		}
	}
	t.Fatal("no such id")
	return ""
}

type source struct{ *state.MemReader }

func newSource(meta map[string]uint64) source {
	s := source{state.NewMemReader()}
	for _, name := range []string{state.MetaApplied, state.MetaBase, state.MetaClock, state.MetaFeature, state.MetaEvicted, state.MetaImporting} {
		if n, ok := meta[name]; ok {
			s.put(keys.MetaKey(name), keys.AppendUint64(nil, n))
		}
	}
	return s
}

func (s source) put(key, value []byte) { s.Apply([]state.Write{{Key: key, Value: value}}) }

func (s source) message(t *testing.T, dst uint32, at state.Channel, from, to string) {
	t.Helper()
	b, err := state.Deterministic.Marshal(&commandv1.Message{Seq: at.Last, Cut: 8, Namespace: ns, FromId: from, ToId: to,
		Kind: &commandv1.Message_Signal{Signal: &perdurev1.SignalSend{Id: to, Name: fmt.Sprint(at.Last)}}})
	if err != nil {
		t.Fatal(err)
	}
	s.put(keys.OutboxOf(dst, at.Epoch, at.Last), b)
}

// rowsOf are all rows of a restore, by partition.
func rowsOf(t *testing.T, sources []source, partitions uint32) (*Plan, []map[string][]byte) {
	t.Helper()
	var readers []state.Reader
	for _, s := range sources {
		readers = append(readers, s.MemReader)
	}
	plan, err := New(readers, partitions)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]map[string][]byte, partitions)
	for n := range out {
		out[n] = map[string][]byte{}
	}
	if err := plan.Rows(func(p uint32, row state.Write) error {
		out[p][string(row.Key)] = row.Value
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return plan, out
}

// sent are the messages in an outbox of a new partition: their numbers and contents.
func sent(t *testing.T, rows map[string][]byte, dst uint32) (out []string) {
	t.Helper()
	var found []string
	for key := range rows {
		if strings.HasPrefix(key, string(keys.Number(keys.Outbox, dst))) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	for _, key := range found {
		msg := &commandv1.Message{}
		if err := proto.Unmarshal(rows[key], msg); err != nil {
			t.Fatal(err)
		}
		_, at, err := cutOutbox([]byte(key))
		if err != nil || at.Last != msg.Seq || msg.Cut != 0 {
			t.Fatalf("message %d of cut %d has the key %x: %v", msg.Seq, msg.Cut, key, err)
		}
		out = append(out, fmt.Sprintf("%d/%d was %s", at.Epoch, at.Last, msg.GetSignal().Name))
	}
	return out
}

// A restore drops the messages that the receiver has and numbers the rest from 1 in a new epoch. A message between two ids
// of one new partition goes to the outbox of that partition to itself.
func TestMessagesOfARestore(t *testing.T) {
	a, b := newSource(map[string]uint64{state.MetaFeature: 6}), newSource(map[string]uint64{state.MetaFeature: 6})
	from, to := idOf(t, "from", 0, 2), idOf(t, "to", 1, 2)
	for n := uint64(3); n <= 6; n++ {
		a.message(t, 1, state.Channel{Epoch: 4, Last: n}, from, to)
	}
	a.put(keys.Number(keys.Channel, 1), state.Channel{Epoch: 4, Last: 6}.Encode())
	b.put(keys.Number(keys.Inbox, 0), state.Channel{Epoch: 4, Last: 4}.Encode())
	_, rows := rowsOf(t, []source{a, b}, 2)
	if got := sent(t, rows[0], 1); !slices.Equal(got, []string{"5/1 was 5", "5/2 was 6"}) {
		t.Errorf("two partitions: %q", got)
	}
	if end, err := state.DecodeChannel(rows[0][string(keys.Number(keys.Channel, 1))]); err != nil || end.Epoch != 5 || end.Last != 2 || end.Bytes == 0 {
		t.Errorf("the channel is at %v, %v", end, err)
	}
	_, rows = rowsOf(t, []source{a, b}, 1)
	if got := sent(t, rows[0], 0); !slices.Equal(got, []string{"5/1 was 5", "5/2 was 6"}) {
		t.Errorf("one partition: %q", got)
	}
	if n := len(rows[0]); n != 3 {
		t.Errorf("%d rows, must be two messages and their channel", n)
	}
	// States that are not of one cut make no cluster.
	b.put(keys.Number(keys.Inbox, 0), state.Channel{Epoch: 4, Last: 7}.Encode())
	if _, err := New([]state.Reader{a.MemReader, b.MemReader}, 2); err == nil {
		t.Error("a message that was received and not sent is accepted")
	}
}

// A lease has ended: nobody holds the task at the version that it has.
func TestLeasesOfARestore(t *testing.T) {
	s := newSource(nil)
	held := recovery.Task{ID: "x", Incarnation: 5, State: recovery.TaskAcquired, Version: 3, PID: "w", TTL: 1000, LeaseAt: 99_000, Target: "f"}
	s.put(keys.Of(keys.Task, ns, "x"), recovery.AppendTask(nil, held))
	s.put(keys.DeadlineOf(keys.DeadlineLease, 99_000, ns, "x"), []byte{})
	s.put(keys.DeadlineOf(keys.DeadlinePromise, 77_000, ns, "x"), []byte{})
	pending := recovery.Task{ID: "y", Incarnation: 6, State: recovery.TaskPending, Version: 2, RetryAt: 55, Target: "f"}
	s.put(keys.Of(keys.Task, ns, "y"), recovery.AppendTask(nil, pending))
	_, rows := rowsOf(t, []source{s}, 1)
	got, err := recovery.DecodeTask(rows[0][string(keys.Of(keys.Task, ns, "x"))])
	if err != nil || got.Version != 4 || got.LeaseAt >= 1000 || got.State != recovery.TaskAcquired {
		t.Errorf("the task is %+v, %v", got, err)
	}
	if _, ok := rows[0][string(keys.DeadlineOf(keys.DeadlineLease, got.LeaseAt, ns, "x"))]; !ok || len(rows[0]) != 4 {
		t.Errorf("%d rows, the lease's deadline among them: %t", len(rows[0]), ok)
	}
	if _, ok := rows[0][string(keys.DeadlineOf(keys.DeadlinePromise, 77_000, ns, "x"))]; !ok {
		t.Error("the deadline of a promise was not kept")
	}
	if got, err := recovery.DecodeTask(rows[0][string(keys.Of(keys.Task, ns, "y"))]); err != nil || got.Version != 2 || got.RetryAt != 55 {
		t.Errorf("a task that nobody holds became %+v, %v", got, err)
	}
}

// The new machines take over what is above all states; replies go where their requests may come, unless they are older
// than what a new partition has forgotten.
func TestOwnValuesOfARestore(t *testing.T) {
	a := newSource(map[string]uint64{state.MetaApplied: 10, state.MetaBase: 100, state.MetaClock: 7000, state.MetaFeature: 5, state.MetaEvicted: 50})
	b := newSource(map[string]uint64{state.MetaApplied: 90, state.MetaClock: 9000, state.MetaFeature: 6, state.MetaEvicted: 20})
	reply := func(s source, at int64, request string) {
		b, err := state.StoredReply{At: at, Reply: &commandv1.Reply{}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		s.put(keys.ReplyOf([]byte(request)), b)
		s.put(keys.ReplyAgeOf(at, []byte(request)), []byte{})
	}
	reply(a, 60, "of a")
	reply(b, 30, "old of b")
	reply(b, 70, "of b")
	a.put(keys.Of(keys.Function, ns, "f"), state.Digests{"1"}.Encode())
	b.put(keys.Of(keys.Function, ns, "f"), state.Digests{"1", "2"}.Encode())
	has := func(rows map[string][]byte, at int64, request string) bool {
		_, reply := rows[string(keys.ReplyOf([]byte(request)))]
		_, age := rows[string(keys.ReplyAgeOf(at, []byte(request)))]
		if reply != age {
			t.Errorf("of the reply %q only a half is there", request)
		}
		return reply
	}
	plan, rows := rowsOf(t, []source{a, b}, 4)
	for n, want := range []struct {
		a, old, b bool
		evicted   uint64
	}{{true, false, false, 50}, {true, false, false, 50}, {false, true, true, 20}, {false, true, true, 20}} {
		if got := has(rows[n], 60, "of a"); got != want.a {
			t.Errorf("partition %d has the reply of the first: %t", n, got)
		}
		if old, got := has(rows[n], 30, "old of b"), has(rows[n], 70, "of b"); old != want.old || got != want.b {
			t.Errorf("partition %d has the replies of the second: %t, %t", n, old, got)
		}
		if done := plan.Done(uint32(n), 9); done.Evicted != want.evicted || done.Base != 110 || done.ClockMs != 9000 || done.Level != 6 || done.Restore != 9 {
			t.Errorf("partition %d ends with %v", n, done)
		}
		if got, err := state.DecodeDigests(rows[n][string(keys.Of(keys.Function, ns, "f"))]); err != nil || !slices.Equal(got, state.Digests{"1", "2"}) {
			t.Errorf("partition %d knows the digests %q, %v", n, got, err)
		}
	}
	_, rows = rowsOf(t, []source{a, b}, 1)
	if !has(rows[0], 60, "of a") || has(rows[0], 30, "old of b") || !has(rows[0], 70, "of b") {
		t.Error("one partition has forgotten what the first had, and no more")
	}
	importing := newSource(map[string]uint64{state.MetaImporting: 3})
	if _, err := New([]state.Reader{importing.MemReader}, 1); err == nil {
		t.Error("half a restore is restored")
	}
}

// Each slot's requests find the replies of the partition that the slot was in.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := rapid.IntRange(1, 40).Draw(t, "before"), uint32(rapid.IntRange(1, 40).Draw(t, "after"))
		p := &Plan{sources: make([]state.Reader, before), count: after}
		want := map[[2]uint32]bool{}
		for slot := range id.Slots {
			want[[2]uint32{uint32(slot * before / id.Slots), uint32(slot) * after / id.Slots}] = true
		}
		for a := range uint32(before) {
			for b := range after {
				if got := p.shares(a, b); got != want[[2]uint32{a, b}] {
					t.Fatalf("partition %d of %d and %d of %d share a slot: %t", a, before, b, after, got)
				}
			}
		}
	})
}

// Damage is named, and stops the restore; so does the receiver of the rows.
func TestDamageStopsARestore(t *testing.T) {
	for name, row := range map[string]state.Write{
		"a family":   {Key: []byte{0xee}, Value: []byte{}},
		"a task":     {Key: keys.Of(keys.Task, ns, "x"), Value: []byte{1}},
		"a message":  {Key: keys.OutboxOf(0, 1, 1), Value: []byte{0xff}},
		"a deadline": {Key: []byte{byte(keys.Deadline), 1}, Value: []byte{}},
		"a listing":  {Key: keys.Of(keys.Visibility, ns), Value: []byte{}},
		"a reply":    {Key: keys.ReplyOf([]byte("r")), Value: []byte{0xff}},
		"a relation": {Key: keys.Of(keys.Callback, ns, "x:1", "y"), Value: []byte{}},
		"an object":  {Key: []byte{byte(keys.Header), 'x'}, Value: []byte{}},
	} {
		s := newSource(nil)
		s.put(row.Key, row.Value)
		plan, err := New([]state.Reader{s.MemReader}, 1)
		if err == nil {
			err = plan.Rows(func(uint32, state.Write) error { return nil })
		}
		if err == nil {
			t.Errorf("%s that is damaged is restored", name)
		}
	}
	s := newSource(nil)
	s.put(keys.Of(keys.Remains, ns, "x"), []byte{})
	plan, err := New([]state.Reader{s.MemReader}, 1)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if err := plan.Rows(func(uint32, state.Write) error { return full }); !errors.Is(err, full) {
		t.Errorf("the receiver's error is %v", err)
	}
}
