package machine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// A search from the previous position finds what a full search finds, while deadlines come and go. A deadline
// that is announced late is found once it is announced.
func TestDueSearch(t *testing.T) {
	late := 0
	one := func(t tester, draw func(n int) int) {
		st := state.NewMemReader()
		var search query.DueSearch
		var there [][]byte
		untold := int64(0)
		for i := range 1 + draw(80) {
			added := untold
			untold = 0
			for range draw(4) {
				at := int64(1 + draw(60))
				kind := keys.DeadlineKinds[draw(len(keys.DeadlineKinds))]
				key := keys.DeadlineOf(kind, at, ns, fmt.Sprint("e", i))
				st.Apply([]state.Write{{Key: key, Value: []byte{}}})
				there = append(there, key)
				if draw(5) == 0 {
					if untold == 0 || at < untold {
						untold = at
					}
				} else if added == 0 || at < added {
					added = at
				}
			}
			for len(there) > 0 && draw(3) == 0 {
				n := draw(len(there))
				st.Apply([]state.Write{{Key: there[n]}})
				there = append(there[:n], there[n+1:]...)
			}
			want, any := state.Never, false
			_ = st.Scan(nil, nil, func(key, _ []byte) bool {
				_, at, _, _, _ := keys.ParseDeadline(key)
				want, any = min(want, at), true
				return true
			})
			got, ok, err := search.Next(st, added)
			if err != nil {
				t.Fatalf("%v", err)
			}
			if untold != 0 && (ok != any || got != want) {
				late++
				if got, ok, err = search.Next(st, untold); err != nil {
					t.Fatalf("%v", err)
				}
				untold = 0
			}
			if ok != any || ok && got != want {
				t.Fatalf("found %d (%t), the earliest is %d (%t)", got, ok, want, any)
			}
			if at, ok, err := query.NextDue(st); err != nil || ok != any || ok && at != want {
				t.Fatalf("NextDue is %d (%t, %v), the earliest is %d (%t)", at, ok, err, want, any)
			}
		}
	}
	for seed := range int64(50) {
		one(t, seeded(seed))
	}
	rapid.Check(t, func(t *rapid.T) { one(t, drawer(t)) })
	if late == 0 {
		t.Error("no deadline was ever announced late")
	}
}

// A tick that has found nothing up to a time still finds what is made due at that very time.
func TestDeadlineBeforeTheSearch(t *testing.T) {
	w := newWorld(t, 1)
	w.do(tickCmd(0))
	if from := w.parts[0].m.due[keys.DueGraph]; from != w.now+1 {
		t.Fatalf("at %d ticks look from %d on", w.now, from)
	}
	var text strings.Builder
	for i := range startsAtOnce + 2 {
		fmt.Fprintf(&text, "n%d; ", i)
	}
	w.submit("run", graphOf(text.String()), "")
	if from := w.parts[0].m.due[keys.DueGraph]; from != w.now {
		t.Fatalf("the run goes on at %d, ticks look from %d on", w.now, from)
	}
	w.do(tickCmd(0))
	for _, n := range w.graphStatus("run").Nodes {
		if n.Status != perdurev1.NodeStatus_NODE_STATUS_RUNNING {
			t.Fatalf("after a tick %v", n)
		}
	}
}

// The front of an outbox is found by numbers: before the first message that is left, whatever has gone. One of an
// older epoch comes first, and a channel that nothing says of is read from the beginning.
func TestOutboxFront(t *testing.T) {
	st := func(epoch uint64, first, last uint64) *state.MemReader {
		r := state.NewMemReader()
		r.Apply([]state.Write{{Key: keys.Number(keys.Channel, 1), Value: state.Channel{Epoch: epoch, Last: last}.Encode()}})
		for n := first; n <= last; n++ {
			r.Apply([]state.Write{{Key: keys.OutboxOf(1, epoch, n), Value: []byte{}}})
		}
		return r
	}
	for last := range uint64(40) {
		for first := uint64(1); first <= last+1; first++ {
			r := st(3, first, last)
			if front, err := state.OutboxFront(r, 1); err != nil || !bytes.Equal(front, keys.OutboxOf(1, 3, first)) {
				t.Fatalf("messages %d to %d: the front is %x, %v", first, last, front, err)
			}
			r.Apply([]state.Write{{Key: keys.OutboxOf(1, 2, 7), Value: []byte{}}})
			if front, err := state.OutboxFront(r, 1); err != nil || !bytes.Equal(front, keys.Number(keys.Outbox, 1)) {
				t.Fatalf("a message of an older epoch: the front is %x, %v", front, err)
			}
		}
	}
	// It takes as many looks as the number of what is left has bits, and not of all there ever was.
	counted := &countingReader{MemReader: st(1, 1_000_000_000-100, 1_000_000_000)}
	if _, err := state.OutboxFront(counted, 1); err != nil || counted.gets > 20 {
		t.Errorf("100 messages are found after %d looks, %v", counted.gets, err)
	}
	r := st(1, 1, 5)
	r.Apply([]state.Write{{Key: keys.Number(keys.Channel, 1)}})
	if front, err := state.OutboxFront(r, 1); err != nil || !bytes.Equal(front, keys.Number(keys.Outbox, 1)) {
		t.Errorf("no channel: the front is %x, %v", front, err)
	}
	r.Apply([]state.Write{{Key: keys.Number(keys.Channel, 1), Value: []byte{0xff}}})
	if front, err := state.OutboxFront(r, 1); err == nil {
		t.Errorf("a damaged channel: the front is %x", front)
	}
}

type countingReader struct {
	*state.MemReader
	gets int
}

func (r *countingReader) Get(key []byte) ([]byte, bool, error) {
	r.gets++
	return r.MemReader.Get(key)
}
