package group

import (
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// commandOverhead is charged for each command in addition to its encoded size: the node's bookkeeping.
const commandOverhead = 512

// Admission is the ledger of reserved bytes that all partitions of a node share. Its methods do not block.
type Admission struct {
	mu     sync.Mutex
	ledger *ledger
}

func newAdmission(limits Limits) *Admission {
	return &Admission{ledger: newLedger(limits.withDefaults())}
}

// reservationOf returns a command's reservation; partition is noPartition for a forwarded command.
func reservationOf(partition int64, cmd *commandv1.Command) reservation {
	return reservation{partition: partition, namespace: cmd.Namespace, class: classOf(cmd), bytes: int64(proto.Size(cmd)) + commandOverhead}
}

// admit reserves a command's bytes. Its error says that the node surely does not apply the command. The
// caller releases an admitted reservation once.
func (a *Admission) admit(r reservation) *api.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	over, ok := a.ledger.reserve(r)
	if ok {
		return nil
	}
	return errOverloadedBytes(r, over)
}

func (a *Admission) release(r reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.release(r)
}

// held returns how many bytes a partition's commands hold; noPartition asks for the whole node.
func (a *Admission) held(partition int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.held(partition)
}

// Forward reserves the bytes of a command while another node answers it. The caller calls release then. The
// error says that the command was not sent.
func (a *Admission) Forward(cmd *commandv1.Command) (release func(), err *api.Error) {
	r := reservationOf(noPartition, cmd)
	if err := a.admit(r); err != nil {
		return nil, err
	}
	return func() { a.release(r) }, nil
}

// Held returns how many bytes of commands the node holds: waiting, in flight, or being forwarded.
func (a *Admission) Held() int64 { return a.held(noPartition) }

// Bounds of the hint when to try again.
const (
	retryAfterMin    = 100 * time.Millisecond
	retryAfterPerMiB = 100 * time.Millisecond
	retryAfterMax    = 2 * time.Second
)

// retryAfter returns the pause before a refused command should come again. A large one waits longer: the node
// read it before refusing it.
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
