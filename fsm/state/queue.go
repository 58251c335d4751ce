package state

import (
	"bytes"
	"slices"
	"strings"
)

// Queue is a queue of pending tasks: those of a function's executions that are pinned to one component
// digest, or to none if Digest is empty.
type Queue struct{ Namespace, Function, Digest string }

// Target is the queue's name: the target of its tasks. A function's name holds no NUL, a digest may hold any byte.
func (q Queue) Target() string { return Target(q.Function, q.Digest) }

// Target is the target of tasks of a function that are pinned to a digest.
func Target(function, digest string) string {
	if digest == "" {
		return function
	}
	return function + "\x00" + digest
}

// QueueOf is the queue of a target.
func QueueOf(namespace, target string) Queue {
	function, digest, _ := strings.Cut(target, "\x00")
	return Queue{namespace, function, digest}
}

// PlaceWithRetry is the value of a task's place in a queue of workers that stands for the task's retry timer as well: the
// deadline index has no entry for that. The place itself announces the task, to every leader, so there is nothing to
// repeat. A place without a value is a client task's, or was written below LevelFunctions, and its task has the entry.
// Nothing may change it.
var PlaceWithRetry = []byte{1}

// RetryInPlace reports whether the value of a place is PlaceWithRetry.
func RetryInPlace(value []byte) bool { return bytes.Equal(value, PlaceWithRetry) }

// RetryMS is how long after it was queued a pending task's retry timer fires.
const RetryMS = 600_000

// Pinned reports whether executions of a function are pinned to digests. Those that the server itself runs are not; a
// clean-up is pinned like the execution that it cleans up after.
func Pinned(function string) bool {
	_, cleanup := CleanedUp(function)
	return cleanup || !strings.HasPrefix(function, "$")
}

// MaxDigests bounds the digests that a function remembers; the oldest is forgotten first.
const MaxDigests = 64

// Digests are the component digests of the workers that have served a function, in the order of their first
// attachment. The last one is current: executions that name no digest are pinned to it.
type Digests []string

// Encode returns the digests as they are stored.
func (d Digests) Encode() []byte {
	e := encoder{b: []byte{}}
	for _, digest := range d {
		e.str(digest)
	}
	return e.b
}

// DecodeDigests reads what Encode wrote.
func DecodeDigests(b []byte) (Digests, error) {
	d := decoder{b: b}
	var out Digests
	for len(d.b) > 0 && d.err == nil {
		digest := d.str()
		if digest == "" || slices.Contains(out, digest) || len(out) == MaxDigests {
			d.fail("a digest that is empty or twice there, or one too many")
		}
		out = append(out, digest)
	}
	return out, d.end()
}

// Knows reports whether a worker of this digest has served the function.
func (d Digests) Knows(digest string) bool { return slices.Contains(d, digest) }

// Current is the digest that new executions are pinned to; empty for none.
func (d Digests) Current() string {
	if len(d) == 0 {
		return ""
	}
	return d[len(d)-1]
}

// With adds a digest, which becomes the current one.
func (d Digests) With(digest string) Digests {
	if len(d) == MaxDigests {
		d = d[1:]
	}
	return append(slices.Clone(d), digest)
}
