package group

import (
	"context"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/partition/grouptest"
	"perdure/partition/quota"
)

// A large command is followed by a pause in proportion, and only while clients' small ones come.
func TestBulkPause(t *testing.T) {
	for name, c := range map[string]struct {
		took    time.Duration
		small   bool
		waiting int64
		want    time.Duration
	}{
		"no other":                  {took: 50 * time.Millisecond},
		"small ones come":           {took: 50 * time.Millisecond, small: true, waiting: 1, want: 50 * bulkPause * time.Millisecond},
		"none of the large waits":   {took: 50 * time.Millisecond, small: true, want: 50 * bulkPause * time.Millisecond},
		"it took long":              {took: time.Minute, small: true, want: bulkMaxPause},
		"many wait":                 {took: time.Minute, small: true, waiting: 80, want: bulkMaxWait / 80},
		"many wait, and it was not": {took: time.Millisecond, small: true, waiting: 80, want: bulkPause * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			clock := grouptest.NewHandClock()
			b := newBulk(clock)
			b.noteSmall()
			clock.Advance(time.Second)
			began := clock.Now()
			if c.small {
				b.noteSmall()
			}
			clock.Advance(c.took)
			b.waiting.Store(c.waiting)
			if got := b.pause(began); got != c.want {
				t.Errorf("a pause of %v, want %v", got, c.want)
			}
		})
	}
}

func largePromise(id string) *commandv1.Command {
	cmd := promiseCmd(id, 1<<40)
	cmd.GetCreatePromise().Param = make([]byte, bulkBytes-1<<16)
	return cmd
}

// A large command takes its bytes of the node's share, and one beyond the share all of it.
func TestBulkShares(t *testing.T) {
	b := newBulk(clock.System{})
	for _, c := range []struct{ bytes, left int64 }{{bulkBytes - 1<<16, 1 << 16}, {3 * bulkBytes, 0}, {1, bulkBytes - 1}} {
		release, err := b.acquire(t.Context(), c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if b.sem.TryAcquire(c.left + 1) {
			t.Errorf("a command of %d bytes leaves more than %d", c.bytes, c.left)
		}
		if !b.sem.TryAcquire(c.left) {
			t.Errorf("a command of %d bytes leaves less than %d", c.bytes, c.left)
		}
		b.sem.Release(c.left)
		release()
	}
}

// All partitions of a node together let one large command into their logs at a time. Small commands pass it. A command
// whose caller gives up in the queue is not applied.
func TestLargeCommandsTakeTurns(t *testing.T) {
	n, disk := newGatedNode(t, 2)
	disk.Hold()
	first, second := n.router.Replicas()[0], n.router.Replicas()[1]
	one := enqueued(t, first, largePromise(idIn(n.Router(), 0, "a")))
	waitFor(t, "the first to be under way", func() bool { return len(first.slots) == 1 }, func() string { return "" })
	two := enqueued(t, second, largePromise(idIn(n.Router(), 1, "b")))
	ctx, cancel := context.WithCancel(bg(t))
	defer cancel()
	left := make(chan error, 1)
	go func() {
		_, err := second.Propose(ctx, largePromise(idIn(n.Router(), 1, "c")))
		left <- err
	}()
	waitFor(t, "two more to be queued or under way", func() bool { return second.pending.len()+len(second.slots) >= 2 }, func() string { return "" })
	few := enqueued(t, second, promiseCmd(idIn(n.Router(), 1, "d"), 1<<40))
	waitFor(t, "the small one to be under way", func() bool { return len(second.slots) >= 1 }, func() string { return "" })
	if n.shared.bulk.waiting.Load() != 2 || second.pending.len() != 2 {
		t.Fatalf("%d wait for their turn and %d for the log, while another is under way", n.shared.bulk.waiting.Load(), second.pending.len())
	}
	cancel()
	if err := <-left; err == nil {
		t.Fatal("who left was answered")
	}
	if n.shared.bulk.waiting.Load() != 1 {
		t.Fatalf("%d wait for their turn after one has left", n.shared.bulk.waiting.Load())
	}
	disk.Release()
	for name, w := range map[string]*waiter{"first": one, "second": two, "small": few} {
		waitFor(t, "the "+name+" to be answered", w.p.finished, func() string { return "" })
		if res := w.wait(); res.err != nil {
			t.Errorf("the %s: %v", name, res.err)
		}
	}
	if n.shared.bulk.waiting.Load() != 0 {
		t.Errorf("%d still wait for their turn", n.shared.bulk.waiting.Load())
	}
}

// A stopping node answers the large commands that are not admitted yet: they are surely not applied.
func TestLargeCommandsWhenStopping(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	disk.Hold()
	enqueued(t, r, largePromise(idIn(n.Router(), 0, "a")))
	waitFor(t, "the first to be under way", func() bool { return len(r.slots) == 1 }, func() string { return "" })
	waiting := enqueued(t, r, largePromise(idIn(n.Router(), 0, "b")))
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = n.close(bg(t))
	}()
	if res := waiting.wait(); res.err == nil || res.err.Reason != perdurev1.Reason_REASON_SHUTTING_DOWN {
		t.Errorf("the waiting one ends with %v", res.err)
	}
	disk.Release()
	<-closed
}

// A command whose leadership is over when the log could take it is refused at once, also while an earlier
// entry is in flight: its caller may ask the next leader.
func TestRefusedWhileAnEntryIsUnderWay(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	disk.Hold()
	enqueued(t, r, promiseCmd(idIn(n.Router(), 0, "a"), 1<<40))
	waitFor(t, "the first to be under way", func() bool { return len(r.slots) == 1 && disk.Held() > 0 }, func() string { return "" })
	lead := r.serving()
	r.lead.Store(nil)
	r.leads.wake()
	defer r.lead.Store(lead)
	cmd := promiseCmd(idIn(n.Router(), 0, "b"), 1<<40)
	reserved, err := r.pending.admission.Reserve(0, cmd)
	if err != nil {
		t.Fatal(err)
	}
	p, _, ok := r.pending.add(cmd, lead, reserved, quota.Charge{})
	if !ok {
		t.Fatal("not queued")
	}
	waitFor(t, "it to be refused", p.finished, func() string { return "" })
	if p.result.err == nil || p.result.err.Reason != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("it ends with %v", p.result.err)
	}
}
