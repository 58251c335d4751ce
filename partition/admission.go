package partition

import (
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// commandOverhead is charged for each command besides its encoded size: what the node keeps about it.
const commandOverhead = 512

// admission is the ledger that all partitions of a node share. Its methods do not block.
type admission struct {
	mu     sync.Mutex
	ledger *ledger
}

func newAdmission(limits Limits) *admission {
	return &admission{ledger: newLedger(limits.withDefaults())}
}

// reservationOf is what a command takes; partition is noPartition for one that is forwarded.
func reservationOf(partition int64, cmd *commandv1.Command) reservation {
	return reservation{partition: partition, namespace: cmd.Namespace, class: classOf(cmd), bytes: int64(proto.Size(cmd)) + commandOverhead}
}

// admit reserves a command's bytes, or says why not: the node surely does not apply it then. What was admitted
// must be released once.
func (a *admission) admit(r reservation) *api.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	over, ok := a.ledger.reserve(r)
	if ok {
		return nil
	}
	return errOverloadedBytes(r, over)
}

func (a *admission) release(r reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.release(r)
}

// held is how many bytes a partition's commands hold; noPartition asks for the whole node.
func (a *admission) held(partition int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.held(partition)
}

// Bounds of the hint when to try again.
const (
	retryAfterMin    = 100 * time.Millisecond
	retryAfterPerMiB = 100 * time.Millisecond
	retryAfterMax    = 2 * time.Second
)

// retryAfter is when a refused command should come again. A large one waits longer: refusing it has cost the
// node what reading it did.
func retryAfter(bytes int64) time.Duration {
	return min(retryAfterMin+time.Duration(bytes)*retryAfterPerMiB/(1<<20), retryAfterMax)
}

func errOverloadedBytes(r reservation, over overrun) *api.Error {
	e := api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "%d bytes of commands wait at this node, and a command of %d bytes exceeds the %s's bound of %d bytes",
		over.held, r.bytes, over.bound, over.limit).
		With("bound", over.bound).With("limit_bytes", strconv.FormatInt(over.limit, 10)).
		WithRetryAfterMS(retryAfter(r.bytes).Milliseconds())
	if r.partition != noPartition {
		e.With("partition", strconv.FormatInt(r.partition, 10))
	}
	return e
}
