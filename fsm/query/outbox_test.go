package query

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// put stores a message whose encoding has at least size bytes, and returns its exact size.
func put(t *rapid.T, r *state.MemReader, destination uint32, epoch, number uint64, size int) int {
	b, err := proto.Marshal(&commandv1.Message{Seq: number, FromId: strings.Repeat("x", size)})
	if err != nil {
		t.Fatal(err)
	}
	r.Apply([]state.Write{{Key: keys.OutboxOf(destination, epoch, number), Value: b}})
	return len(b)
}

// A shipment has the first messages of one epoch, in order: the most that both bounds allow, but at least one.
func TestOutgoing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := state.NewMemReader()
		const dst = 3
		first := rapid.Uint64Range(1, 50).Draw(t, "first")
		sizes := rapid.SliceOfN(rapid.IntRange(0, 40), 0, 8).Draw(t, "sizes")
		for i, size := range sizes {
			sizes[i] = put(t, r, dst, 7, first+uint64(i), size)
		}
		r.Apply([]state.Write{{Key: keys.Number(keys.Channel, dst), Value: state.Channel{Epoch: 7, Last: first + uint64(len(sizes)) - 1}.Encode()}})
		put(t, r, dst-1, 7, 1, 5) // other destinations
		put(t, r, dst+1, 7, 1, 5)

		limit, bytes := rapid.IntRange(1, 10).Draw(t, "limit"), rapid.IntRange(1, 120).Draw(t, "bytes")
		want, total := 0, 0
		for want < len(sizes) && want < limit && (want == 0 || total+sizes[want] <= bytes) {
			total += sizes[want]
			want++
		}
		epoch, msgs, err := Outgoing(r, dst, state.Channel{}, limit, bytes)
		if err != nil || len(msgs) != want || want > 0 && epoch != 7 {
			t.Fatalf("%d messages of epoch %d, %v, must be %d of %v", len(msgs), epoch, err, want, sizes)
		}
		for i, m := range msgs {
			if m.Seq != first+uint64(i) {
				t.Fatalf("message %d has number %d, the first has %d", i, m.Seq, first)
			}
		}
		skip := rapid.IntRange(1, 9).Draw(t, "skip")
		if _, rest, err := Outgoing(r, dst, state.Channel{Epoch: 7, Last: first + uint64(skip) - 1}, 100, 1<<20); err != nil || len(rest) != max(len(sizes)-skip, 0) ||
			len(rest) > 0 && rest[0].Seq != first+uint64(skip) {
			t.Fatalf("behind %d of %d messages: %d, %v", skip, len(sizes), len(rest), err)
		}
		holders, err := Destinations(r, 6)
		if expect := []uint32{dst - 1, dst, dst + 1}; len(sizes) == 0 {
			if err != nil || !slices.Equal(holders, []uint32{dst - 1, dst + 1}) {
				t.Fatalf("messages for %v, %v", holders, err)
			}
		} else if err != nil || !slices.Equal(holders, expect) {
			t.Fatalf("messages for %v, %v", holders, err)
		}
	})
}

// Messages of an older epoch travel first, and never in one shipment with those of a newer one.
func TestOutgoingByEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := state.NewMemReader()
		old, present := rapid.IntRange(0, 3).Draw(t, "old"), rapid.IntRange(0, 3).Draw(t, "present")
		for n := range old {
			put(t, r, 0, 4, uint64(n+9), 1)
		}
		for n := range present {
			put(t, r, 0, 5, uint64(n+1), 1)
		}
		r.Apply([]state.Write{{Key: keys.Number(keys.Channel, 0), Value: state.Channel{Epoch: 5, Last: uint64(present)}.Encode()}})
		epoch, msgs, err := Outgoing(r, 0, state.Channel{}, 100, 1<<20)
		want, from := present, uint64(5)
		if old > 0 {
			want, from = old, 4
		}
		if err != nil || len(msgs) != want || want > 0 && epoch != from {
			t.Fatalf("%d messages of epoch %d, %v: there are %d old and %d present", len(msgs), epoch, err, old, present)
		}
	})
}
