package state

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"perdure/recovery"
)

// OutcomeOf returns the result that a settled promise gives its awaiters.
func OutcomeOf(p recovery.Promise) []byte {
	switch p.State {
	case recovery.PromiseRejectedTimedout:
		return EncodeFailure(FailureTimeout, "timed out")
	case recovery.PromiseRejectedCanceled:
		if len(p.Value) > 0 {
			return p.Value
		}
		return EncodeFailure(FailureCancelled, "cancelled")
	case recovery.PromiseResolved:
		if len(p.Value) > 0 {
			return p.Value
		}
		return recovery.AppendOutcome(nil, recovery.Outcome{})
	default:
		return p.Value
	}
}

func EncodeFailure(kind, message string) []byte {
	return recovery.AppendOutcome(nil, recovery.Outcome{Failure: &recovery.Failure{Type: kind, Message: message}})
}

// DataOf is the value of a result; a result without one is JSON's null.
func DataOf(outcome []byte) []byte {
	if o, err := recovery.DecodeOutcome(outcome); err == nil && len(o.Data) > 0 {
		return o.Data
	}
	return []byte("null")
}

// OfSend reports whether a promise is that of a send. Its parameter is the id of the target; NewPromise has none.
func OfSend(p recovery.Promise) bool {
	return p.External && p.Target == "" && (len(p.Param) > 0 || OfNewPromise(p))
}

// entityTag marks the promise of a function's call of an entity, or of its critical section. A user's tags
// cannot have it there: these promises have no others.
const entityTag = "$entity"

// EntityTags are the tags of a promise that entities settle.
func EntityTags(of string) []recovery.Tag { return []recovery.Tag{{Key: entityTag, Value: of}} }

// The operations whose promises entities settle.
const (
	OfEntityCall = "call"
	OfLocks      = "locks"
)

// OfEntity reports whether entities settle a promise of a send. Its parameter is the entity's id, for a
// critical section that of the first entity.
func OfEntity(p recovery.Promise) bool {
	return OfSend(p) && len(p.Tags) == 1 && p.Tags[0].Key == entityTag
}

// newPromiseTag marks a promise that a function has made for clients to settle. A user's tags cannot have it there, as
// above. Its value is a digest of the secret in the promise's token, since everybody who reads the promise sees it.
const newPromiseTag = "$promise"

// NewPromiseTags are the tags of a promise that a function has made for clients to settle by a token with a secret; with
// nil by its id, too.
func NewPromiseTags(secret []byte) []recovery.Tag {
	return []recovery.Tag{{Key: newPromiseTag, Value: secretDigest(secret)}}
}

func secretDigest(secret []byte) string {
	if len(secret) == 0 {
		return ""
	}
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:16])
}

// HasSecret reports whether a promise that a function has made has a given secret; nil for none.
func HasSecret(p recovery.Promise, secret []byte) bool {
	digest, _ := p.Tag(newPromiseTag)
	return digest == secretDigest(secret)
}

// OfNewPromise reports whether a function has made an operation's promise for clients to settle. The id of
// such a promise is an operation's; a standalone promise with this tag has another id.
func OfNewPromise(p recovery.Promise) bool {
	return p.External && p.Target == "" && !p.Timer && len(p.Param) == 0 && len(p.Tags) == 1 && p.Tags[0].Key == newPromiseTag
}

// awaitTag marks the promise of a function's wait for a promise of another object.
const awaitTag = "$await"

// AwaitTags are the tags of the promise of a wait for a promise of another object.
func AwaitTags() []recovery.Tag { return []recovery.Tag{{Key: awaitTag}} }

// OfAwait reports whether a promise is that of a wait for a promise of another object, which its parameter names.
func OfAwait(p recovery.Promise) bool {
	return OfSend(p) && len(p.Tags) == 1 && p.Tags[0].Key == awaitTag
}

// signalTag marks the promise of a function's wait for a signal that can be one of several waits.
const signalTag = "$signal"

// SignalTags are the tags of the promise of such a wait.
func SignalTags() []recovery.Tag { return []recovery.Tag{{Key: signalTag}} }

// OfSignal reports whether a promise is that of a wait for a signal, whose name is its parameter.
func OfSignal(p recovery.Promise) bool {
	return OfSend(p) && len(p.Tags) == 1 && p.Tags[0].Key == signalTag
}

// RetryBound reads from a policy's text how many retries it allows: "attempts=N" comes first, the worker's
// own terms follow.
func RetryBound(policy string) int {
	const standard = 3
	digits, ok := strings.CutPrefix(policy, "attempts=")
	if !ok {
		return standard
	}
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	attempts, err := strconv.Atoi(digits)
	if err != nil || attempts < 1 {
		return standard
	}
	return attempts - 1
}

// Failure types that the server itself gives.
const (
	FailureTimeout   = "timeout"
	FailureCancelled = "cancelled"
	FailureConflict  = "conflict"
)

// Failure types of graph runs, and those by which an attempt says that it is something else than a failure.
const (
	FailureGraph     = "graph_failed"
	FailureStuck     = "graph_stuck"
	FailureInput     = "graph.input"
	FailureSkipped   = "graph.skipped"
	FailureSuspended = "graph.suspended"
)

// Failure types of a send whose target did not get the signal.
const (
	// FailureTargetNotFound: no execution has the target's id.
	FailureTargetNotFound = "target_not_found"
	// FailureTargetFinished: the target had ended before the signal came.
	FailureTargetFinished = "target_finished"
)
