package group

import (
	"sync/atomic"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
)

// timer proposes a tick when the deadline index holds an expired deadline.
type timer struct {
	l      *leadership
	next   atomic.Int64 // unix milliseconds of the earliest deadline known; 0 for none
	seen   atomic.Int64 // likewise, as the last scan of the state found it
	wakeup chan struct{}
	done   chan struct{}
	// search belongs to run. added is the earliest deadline that search has not been given yet, 0 for none.
	search query.DeadlineSearch
	added  atomic.Int64
}

func newTimer(l *leadership) *timer {
	return &timer{l: l, wakeup: make(chan struct{}, 1), done: make(chan struct{})}
}

// at makes sure that a tick is proposed at a time, or earlier.
func (t *timer) at(ms int64) {
	earlier(&t.added, ms)
	if earlier(&t.next, ms) {
		t.signal()
	}
}

// signal has run compute its wait again. It does not block.
func (t *timer) signal() {
	select {
	case t.wakeup <- struct{}{}:
	default:
	}
}

// earlier makes a time an earlier one; 0 is none.
func earlier(v *atomic.Int64, ms int64) bool {
	for {
		old := v.Load()
		if old != 0 && old <= ms {
			return false
		}
		if v.CompareAndSwap(old, ms) {
			return true
		}
	}
}

// ClockJumped has the timer of a leader count its wait again: Env.Now has jumped. It does not block.
func (c *core) ClockJumped() {
	if l := c.serving(); l != nil {
		l.timer.signal()
	}
}

const tickLimit = 256

func (t *timer) run() {
	defer close(t.done)
	r := t.l.r
	for t.l.ctx.Err() == nil {
		var fire <-chan time.Time
		stop := func() {}
		if next := t.next.Load(); next != 0 {
			fire, stop = r.clock.After(time.Duration(max(next-r.env.Now().UnixMilli(), 0)) * time.Millisecond)
		}
		select {
		case <-t.l.ctx.Done():
			stop()
			return
		case <-t.wakeup:
			stop()
			continue
		case <-fire:
		}
		if err := t.tick(); err != nil && t.l.ctx.Err() == nil {
			if api.Is(err, perdurev1.Reason_REASON_DISK_FULL) {
				t.pause(time.Second) // the disk's guard logs it
			} else {
				r.log.Warn("tick failed", "event", "tick_failed", "partition", r.id, "error", err)
				t.pause(100 * time.Millisecond)
			}
			t.at(r.env.Now().UnixMilli())
		}
	}
}

func (t *timer) pause(d time.Duration) {
	c, stop := t.l.r.clock.After(d)
	defer stop()
	select {
	case <-c:
	case <-t.l.ctx.Done():
	}
}

// tick runs expirations until none is left, then finds the next deadline. The deadline that woke the timer
// may have been deleted meanwhile (a task was committed before its lease ended): tick proposes nothing then.
func (t *timer) tick() error {
	r := t.l.r
	t.next.Store(0)
	for {
		at, ok, err := t.nextExpiration()
		if err != nil || !ok {
			return err
		}
		if at > r.env.Now().UnixMilli() {
			t.at(at)
			return nil
		}
		if _, err := r.commands.Propose(t.l.ctx, &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{Limit: tickLimit}}}); err != nil {
			return err
		}
		r.metrics.Ticks.Inc()
	}
}

func (t *timer) nextExpiration() (at int64, ok bool, err error) {
	// A deadline added after this is in the state that Peek reads, or is in t.added at the next call. A search that Peek runs again
	// continues the former one, on a later state.
	added := t.added.Swap(0)
	err = t.l.r.store.Peek(func(r state.Reader) error {
		found, there, err := t.search.Next(r, added)
		if err != nil || !there {
			return err
		}
		importing, err := state.MetaNumber(r, state.MetaImporting)
		at, ok = found, importing == 0 // the end of a restore adds a deadline
		return err
	})
	if err == nil {
		t.seen.Store(at)
	}
	return at, ok, err
}

// lag is how late the earliest known deadline is; 0 when it is still ahead, or none is known.
func (t *timer) lag() time.Duration {
	earliest := t.seen.Load()
	if next := t.next.Load(); earliest == 0 || next != 0 && next < earliest {
		earliest = next
	}
	if earliest == 0 {
		return 0
	}
	return time.Duration(max(t.l.r.env.Now().UnixMilli()-earliest, 0)) * time.Millisecond
}
