package durable

import "time"

// Lease arithmetic of a worker. A lease begins when the leader acquires the task, at a moment that the worker does not
// see. So the worker counts from an earlier moment on its own clock: when it made a message that the leader had when it
// proposed to acquire the task (Task.acquired_after), or when it made a heartbeat that was answered. This file is
// arithmetic on given times: no lock, no clock.

// leaseMargin: a worker begins nothing in the last 1/leaseMargin of a lease. The margin covers clocks of different
// speed, a leader's clock that is set forward, and the time from the check to the first effect.
const leaseMargin = 8

// elapsed is an upper bound of the time between two clock readings: the larger of the monotonic difference (which
// stops while the machine is suspended) and the wall difference (which shrinks when the clock is set back).
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)), 0)
}

// leaseLeft is how long a step may still begin under a lease that holds for length from the moment from on. It is 0 or
// less when the worker must ask for the lease first, also if from is the zero time (unknown).
func leaseLeft(from, now time.Time, length time.Duration) time.Duration {
	if from.IsZero() {
		return 0
	}
	return length - length/leaseMargin - elapsed(from, now)
}

// timestamps numbers the moments at which a worker made its messages. Moments closer than step share a
// number, which then means the first of them. Numbers begin at 1; the latest keep of them are remembered.
type timestamps struct {
	step time.Duration
	keep int
	last uint64
	at   []time.Time // of the numbers up to last, oldest first
}

// newTimestamps remembers the moments of at least one lease.
func newTimestamps(lease time.Duration) *timestamps {
	const perLease = 64
	return &timestamps{step: lease / perLease, keep: 2 * perLease}
}

// next is the number of a message that is made now.
func (s *timestamps) next(now time.Time) uint64 {
	if n := len(s.at); n > 0 && elapsed(s.at[n-1], now) < s.step {
		return s.last
	}
	if len(s.at) == s.keep {
		s.at = append(s.at[:0], s.at[1:]...)
	}
	s.at = append(s.at, now)
	s.last++
	return s.last
}

// when is the moment of a number; the zero time if unknown.
func (s *timestamps) when(n uint64) time.Time {
	if n == 0 || n > s.last || s.last-n >= uint64(len(s.at)) {
		return time.Time{}
	}
	return s.at[uint64(len(s.at))-1-(s.last-n)]
}

// execKey names an execution. Of its tokens the highest incarnation, and in it the highest version, is the latest.
type execKey struct{ namespace, id string }

func (k tokenKey) exec() execKey { return execKey{k.namespace, k.id} }

// upTo reports whether a token is another one of the same execution, or an earlier one.
func (k tokenKey) upTo(other tokenKey) bool {
	return k.incarnation < other.incarnation || k.incarnation == other.incarnation && k.version <= other.version
}

// ended remembers the tokens that a worker has finished with, so that a late message begins none of them
// again: 0 <= len(byExec) <= maxEnded, and the ids have at most maxEndedBytes. An entry lasts for two leases.
// gone covers entries that were dropped earlier: a task that was acquired after a moment not later than gone
// may have been forgotten. It begins only after the cluster has confirmed it.
type ended struct {
	lasts time.Duration
	// byExec are the numbers of the latest tokens.
	byExec map[execKey]uint64
	// tokens are numbered as they were added: those from first on, before next, each at its number modulo the length, which is
	// a power of two. One that was replaced since is skipped. 0 <= next - first <= 2*maxEnded + 1.
	tokens      []endedToken
	first, next uint64
	bytes       int
	gone        time.Time
}

type endedToken struct {
	key tokenKey
	at  time.Time
}

const (
	maxEnded      = 65_536
	maxEndedBytes = 16 << 20
)

func newEnded(lease time.Duration) *ended {
	return &ended{lasts: 2 * lease, byExec: map[execKey]uint64{}, tokens: make([]endedToken, 16)}
}

// token is the one of a number.
func (e *ended) token(n uint64) *endedToken { return &e.tokens[n&uint64(len(e.tokens)-1)] }

// add notes that a token is finished with.
func (e *ended) add(key tokenKey, now time.Time) {
	if n, ok := e.byExec[key.exec()]; !ok {
		e.bytes += len(key.namespace) + len(key.id)
	} else if former := e.token(n).key; key.upTo(former) && key != former {
		return
	}
	if e.next-e.first == uint64(len(e.tokens)) {
		former := *e
		e.tokens = make([]endedToken, 2*len(e.tokens))
		for n := e.first; n < e.next; n++ {
			*e.token(n) = *former.token(n)
		}
	}
	*e.token(e.next) = endedToken{key, now}
	e.byExec[key.exec()] = e.next
	for e.next++; e.first < e.next; e.first++ {
		first := e.token(e.first)
		old := elapsed(first.at, now) > e.lasts
		if !old && len(e.byExec) <= maxEnded && e.bytes <= maxEndedBytes && e.next-e.first <= 2*maxEnded {
			return
		}
		exec := first.key.exec()
		if e.byExec[exec] == e.first { // else it was replaced
			delete(e.byExec, exec)
			e.bytes -= len(exec.namespace) + len(exec.id)
			if !old && e.gone.Before(first.at) {
				e.gone = first.at
			}
		}
		*first = endedToken{} // its strings
	}
}

// has reports whether a token is finished with: it, or a later one of its execution.
func (e *ended) has(key tokenKey) bool {
	last, ok := e.byExec[key.exec()]
	return ok && key.upTo(e.token(last).key)
}

// covers reports whether every token that was acquired after a moment, and is finished with, is remembered.
func (e *ended) covers(from time.Time) bool { return !from.IsZero() && from.After(e.gone) }
