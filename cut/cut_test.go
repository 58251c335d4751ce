package cut_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"perdure/cut"
)

// whole returns the checkpoints of a cut, if every partition has one.
func (w *world) whole(n cut.Number) (out []*partition) {
	for p := range w.partitions {
		c, ok := w.checkpoints[p][n]
		if !ok {
			return nil
		}
		out = append(out, c.clone())
	}
	return out
}

// channelOf returns the channel between two checkpoints.
func channelOf(parts []*partition, src, dst int) cut.Channel {
	s := parts[src]
	c := cut.Channel{Sent: s.channel[dst], Received: parts[dst].inbox[src], First: cut.End{Epoch: s.channel[dst].Epoch, Last: s.channel[dst].Last + 1}}
	if box := s.outbox[dst]; len(box) > 0 {
		c.First = box[0].at
	}
	return c
}

// law checks the checkpoints of one cut, then restores them into as many partitions as choose says and lets the
// restored cluster run.
func (w *world) law(n cut.Number, parts []*partition, choose func(int) int) error {
	total, undelivered := 0, 0
	sent, received := map[int]bool{}, map[int]bool{}
	for src, p := range parts {
		for _, b := range p.balance {
			total += b
		}
		for _, id := range p.sent {
			sent[id] = true
		}
		for _, id := range p.received {
			if received[id] {
				return fmt.Errorf("cut %d: message %d was received twice", n, id)
			}
			received[id] = true
		}
		for _, id := range w.begun[n][src] {
			if !slices.Contains(p.sent, id) {
				return fmt.Errorf("cut %d: message %d was acknowledged before the cut began, and is not in it", n, id)
			}
		}
		for dst := range parts {
			c := channelOf(parts, src, dst)
			if err := c.Check(); err != nil {
				return fmt.Errorf("cut %d, from partition %d to %d: %w", n, src, dst, err)
			}
			for _, m := range p.outbox[dst] {
				if !c.Delivered(m.at) {
					total += m.value
					undelivered++
				}
			}
		}
	}
	for id := range received {
		if !sent[id] {
			return fmt.Errorf("cut %d: message %d was received and never sent", n, id)
		}
	}
	if total != objects*amount {
		return fmt.Errorf("cut %d: the sum is %d of %d", n, total, objects*amount)
	}
	if len(received)+undelivered != len(sent) {
		return fmt.Errorf("cut %d: %d messages were sent, %d received, %d are on their way", n, len(sent), len(received), undelivered)
	}
	return w.restore(parts, 1+choose(5)).finish()
}

// restore makes a cluster of another number of partitions out of a cut. The order between two objects stays.
func (w *world) restore(parts []*partition, count int) *world {
	r := newWorld(count, w.plant)
	r.ids = w.ids
	epoch := uint64(0)
	for src := range parts {
		for dst := range parts {
			epoch = max(epoch, channelOf(parts, src, dst).Renewed())
		}
	}
	for src, p := range parts {
		for o, b := range p.balance {
			r.partitions[r.home(o)].balance[o] = b
		}
		r.partitions[0].sent, r.partitions[0].received = append(r.partitions[0].sent, p.sent...), append(r.partitions[0].received, p.received...)
		for dst := range parts {
			c := channelOf(parts, src, dst)
			for _, m := range p.outbox[dst] {
				if c.Delivered(m.at) {
					continue
				}
				from, to := r.home(m.from), r.home(m.to)
				st := r.partitions[from]
				m.at, m.sent = cut.End{Epoch: epoch, Last: st.channel[to].Last + 1}, 0
				st.channel[to] = m.at
				st.outbox[to] = append(st.outbox[to], m)
			}
		}
	}
	return r
}

// finish lets a restored cluster run: every message is applied exactly once.
func (w *world) finish() error {
	if err := w.settle(); err != nil {
		return err
	}
	total := 0
	var sent, received []int
	for _, p := range w.partitions {
		sent, received = append(sent, p.sent...), append(received, p.received...)
		for _, b := range p.balance {
			total += b
		}
	}
	slices.Sort(sent)
	slices.Sort(received)
	if !slices.Equal(sent, received) {
		return fmt.Errorf("restored: sent are %v, received %v", sent, received)
	}
	if total != objects*amount {
		return fmt.Errorf("restored: the sum is %d of %d", total, objects*amount)
	}
	return nil
}

// run interprets a script as an interleaving, and checks every cut that is whole at its end and after it.
func run(script []uint16, p plant) (wholes int, err error) {
	at := 0
	choose := func(n int) int {
		if at >= len(script) {
			return 0
		}
		at++
		// Mixed, because a generator prefers small numbers.
		x := (uint64(script[at-1]) + uint64(at)<<16) * 0x9e3779b97f4a7c15
		return int((x ^ x>>29) >> 3 % uint64(n))
	}
	w := newWorld(2+choose(3), p)
	for at < len(script) {
		w.step(choose)
	}
	if err := w.settle(); err != nil {
		return 0, err
	}
	at = 0 // the restores choose, too
	for n := range w.begun {
		if parts := w.whole(n); parts != nil {
			wholes++
			err = errors.Join(err, w.law(n, parts, choose))
		}
	}
	if w.running > 0 && w.whole(w.running) == nil && p != lateCheckpoint {
		err = errors.Join(err, fmt.Errorf("cut %d ran to its end and has no checkpoint somewhere", w.running))
	}
	return wholes, errors.Join(err, w.finish())
}

var scripts = rapid.SliceOfN(rapid.Uint16(), 300, 3000)

// Whatever is delayed, repeated, lost or given up, and whichever leader changes: the checkpoints of one cut are a state
// that the cluster could have been in, and a restore of them delivers each message exactly once.
func TestCutIsConsistent(t *testing.T) {
	wholes := 0
	rapid.Check(t, func(t *rapid.T) {
		n, err := run(scripts.Draw(t, "script"), sound)
		wholes += n
		if err != nil {
			t.Fatal(err)
		}
	})
	if wholes < 5 { // of 20 interleavings, where few are asked for
		t.Errorf("only %d cuts were whole: the interleavings show nothing", wholes)
	}
}

// The laws notice each defect of a partition within a few interleavings.
func TestLawsNotice(t *testing.T) {
	for _, p := range []plant{unstamped, restamped, ackUnstamped, deliverUnguarded, trimUnguarded, lateCheckpoint, early, again, skips} {
		t.Run(string(p), func(t *testing.T) {
			for seed := range 1500 {
				if _, err := run(scripts.Example(seed), p); err != nil {
					return
				}
			}
			t.Error("1,500 interleavings break no law")
		})
	}
}

// Both ends of a channel say whether their checkpoints are of one cut.
func TestChannel(t *testing.T) {
	end := func(epoch, last uint64) cut.End { return cut.End{Epoch: epoch, Last: last} }
	for _, c := range []struct {
		name    string
		channel cut.Channel
		sound   bool
	}{
		{"never used", cut.Channel{First: end(0, 1)}, true},
		{"all received and trimmed", cut.Channel{Sent: end(1, 5), First: end(1, 6), Received: end(1, 5)}, true},
		{"received and not trimmed", cut.Channel{Sent: end(1, 5), First: end(1, 2), Received: end(1, 5)}, true},
		{"none received", cut.Channel{Sent: end(1, 5), First: end(1, 1)}, true},
		{"a new epoch, not yet received", cut.Channel{Sent: end(3, 5), First: end(3, 1), Received: end(2, 9)}, true},
		{"received and not sent", cut.Channel{Sent: end(1, 5), First: end(1, 6), Received: end(1, 6)}, false},
		{"received in a later epoch", cut.Channel{Sent: end(1, 5), First: end(1, 6), Received: end(2, 1)}, false},
		{"trimmed and not received", cut.Channel{Sent: end(1, 5), First: end(1, 4), Received: end(1, 2)}, false},
		{"all trimmed, none received", cut.Channel{Sent: end(1, 5), First: end(1, 6)}, false},
		{"a new epoch without its beginning", cut.Channel{Sent: end(3, 5), First: end(3, 2), Received: end(2, 9)}, false},
	} {
		if err := c.channel.Check(); (err == nil) != c.sound {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	c := cut.Channel{Sent: end(2, 5), First: end(2, 1), Received: end(2, 3)}
	for _, m := range []cut.End{end(1, 9), end(2, 1), end(2, 3)} {
		if !c.Delivered(m) {
			t.Errorf("message %v was received", m)
		}
	}
	for _, m := range []cut.End{end(2, 4), end(3, 1)} {
		if c.Delivered(m) {
			t.Errorf("message %v was not received", m)
		}
	}
	if n := (cut.Channel{Sent: end(2, 5), Received: end(4, 1)}).Renewed(); n != 5 {
		t.Errorf("the new epoch is %d", n)
	}
}
