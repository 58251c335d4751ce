package recovery

import (
	"slices"
	"strings"
)

// PromiseState is the state of a promise. The numbers are part of the stored encoding and never
// change; the zero value is no state.
type PromiseState uint8

// The states of a promise. All but PromisePending are final.
const (
	PromisePending          PromiseState = 1
	PromiseResolved         PromiseState = 2
	PromiseRejected         PromiseState = 3
	PromiseRejectedCanceled PromiseState = 4
	PromiseRejectedTimedout PromiseState = 5
)

var promiseStateNames = [...]string{
	PromisePending:          "pending",
	PromiseResolved:         "resolved",
	PromiseRejected:         "rejected",
	PromiseRejectedCanceled: "rejected_canceled",
	PromiseRejectedTimedout: "rejected_timedout",
}

// Valid reports whether s is one of the five states.
func (s PromiseState) Valid() bool {
	return s >= PromisePending && s <= PromiseRejectedTimedout
}

// Settled reports whether s is one of the four final states.
func (s PromiseState) Settled() bool { return s.Valid() && s != PromisePending }

// Settable reports whether a request may settle a promise in state s. RejectedTimedout is not: only
// the deadline leads there.
func (s PromiseState) Settable() bool {
	return s >= PromiseResolved && s <= PromiseRejectedCanceled
}

// String returns the protocol's name of s, or "invalid".
func (s PromiseState) String() string {
	if !s.Valid() {
		return "invalid"
	}
	return promiseStateNames[s]
}

// ParsePromiseState returns the state with the given protocol name.
func ParsePromiseState(name string) (PromiseState, bool) {
	for s := PromisePending; s.Valid(); s++ {
		if promiseStateNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// Tag is one key and value given to a promise at creation.
type Tag struct {
	Key, Value string
}

// Promise is a value that is written once, with a deadline. ID, Incarnation, Param, Tags, Target,
// Timer, External, TimeoutAt, CreatedAt and DelayUntil never change; State, Value and SettledAt change
// once, together. The slices are shared and must not be modified in place.
type Promise struct {
	// ID is the name, non-empty, compared as bytes.
	ID string
	// Incarnation distinguishes this use of the id from earlier and later ones; at least 1.
	Incarnation uint64
	State       PromiseState
	// Param is what the creator gave, Value what the settler gave; both opaque. Empty and nil are the
	// same value.
	Param, Value []byte
	// Tags are sorted by key, each key once.
	Tags []Tag
	// Target is the address of the workers that may execute it; empty if no worker executes it.
	Target string
	// Timer makes the deadline resolve the promise instead of rejecting it.
	Timer bool
	// External reports that a client will settle it: it may be awaited, and the server's clock runs its
	// deadline.
	External bool
	// TimeoutAt is the deadline, CreatedAt and SettledAt when it happened, in Unix milliseconds.
	// SettledAt means nothing while pending (0).
	TimeoutAt, CreatedAt, SettledAt int64
	// DelayUntil is the earliest time of the first Execute; 0 means at once.
	DelayUntil int64
}

// Live reports whether p is pending and its deadline has not come.
func (p Promise) Live(now int64) bool {
	return p.State == PromisePending && now < p.TimeoutAt
}

// At returns p as of now: a pending promise whose deadline has passed is settled at its deadline, resolved
// with an empty value if it is a timer, else rejected as timed out. At stores nothing.
func (p Promise) At(now int64) Promise {
	if p.State != PromisePending || now < p.TimeoutAt {
		return p
	}
	p.State = PromiseRejectedTimedout
	if p.Timer {
		p.State = PromiseResolved
	}
	p.Value = nil
	p.SettledAt = p.TimeoutAt
	return p
}

// Awaitable reports whether the protocol lets others wait for p: it has a target, is a timer, or is
// external.
func (p Promise) Awaitable() bool {
	return p.Target != "" || p.Timer || p.External
}

// Deadline returns when [TimeoutPromise] must be called for p, and whether it must be called at all. A
// pending promise is armed when it is awaitable or when awaited says that it has a callback or a listener;
// the deadline of any other is not observable, so it needs no timer. A store that keeps an index of deadlines
// derives it from this.
func (p Promise) Deadline(awaited bool) (at int64, armed bool) {
	if p.State != PromisePending || !(p.Awaitable() || awaited) {
		return 0, false
	}
	return p.TimeoutAt, true
}

// Tag returns the value of the tag with the given key.
func (p Promise) Tag(key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(p.Tags, key, func(t Tag, k string) int { return strings.Compare(t.Key, k) })
	if !ok {
		return "", false
	}
	return p.Tags[i].Value, true
}
