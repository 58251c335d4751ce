// Package admission bounds the bytes of commands that a node holds: waiting, in flight, or being forwarded.
// It owns the ledger that all partitions of the node share. It promises that no bound is exceeded and that new
// work never takes the half of a bound that is for commands which finish work. A crash loses all reservations,
// with the commands that they are for.
//
//	reserved, err := pool.Reserve(partition, cmd)
//	... // the log takes the command and answers it
//	pool.Release(reserved)
package admission

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

// Pool is the ledger of reserved bytes that all partitions of a node share. Its methods do not block.
type Pool struct {
	mu     sync.Mutex
	ledger *ledger
}

// New makes a pool with nothing reserved. Zero fields of limits are DefaultLimits'.
func New(limits Limits) *Pool { return &Pool{ledger: newLedger(limits.withDefaults())} }

// Cost is how many bytes a command reserves.
func Cost(cmd *commandv1.Command) int64 { return int64(proto.Size(cmd)) + commandOverhead }

func reservationOf(partition int64, cmd *commandv1.Command) Reservation {
	return Reservation{partition: partition, namespace: cmd.Namespace, class: classOf(cmd), bytes: Cost(cmd)}
}

// Reserve reserves a command's bytes for a partition's log. The caller releases the reservation once. The error,
// OVERLOADED with a hint when to try again, says that the node surely does not apply the command.
func (a *Pool) Reserve(partition uint32, cmd *commandv1.Command) (Reservation, *api.Error) {
	r := reservationOf(int64(partition), cmd)
	return r, a.admit(r)
}

func (a *Pool) admit(r Reservation) *api.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	over, ok := a.ledger.reserve(r)
	if ok {
		return nil
	}
	return errOverloaded(r, over)
}

// Release returns the bytes of a reservation.
func (a *Pool) Release(r Reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ledger.release(r)
}

// HeldBy returns how many bytes a partition's commands hold.
func (a *Pool) HeldBy(partition uint32) int64 { return a.held(int64(partition)) }

func (a *Pool) held(partition int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.held(partition)
}

// Forward reserves the bytes of a command while another node answers it. The caller calls release then. The
// error says that the command was not sent.
func (a *Pool) Forward(cmd *commandv1.Command) (release func(), err *api.Error) {
	r := reservationOf(noPartition, cmd)
	if err := a.admit(r); err != nil {
		return nil, err
	}
	return func() { a.Release(r) }, nil
}

// Held returns how many bytes of commands the node holds: waiting, in flight, or being forwarded.
func (a *Pool) Held() int64 { return a.held(noPartition) }

// Bounds of the hint when to try again.
const (
	RetryAfterMin    = 100 * time.Millisecond
	retryAfterPerMiB = 100 * time.Millisecond
	retryAfterMax    = 2 * time.Second
)

// retryAfter returns the pause before a refused command should come again. A large one waits longer: the node
// read it before refusing it.
func retryAfter(bytes int64) time.Duration {
	return min(RetryAfterMin+time.Duration(bytes)*retryAfterPerMiB/(1<<20), retryAfterMax)
}

func errOverloaded(r Reservation, over overrun) *api.Error {
	e := api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "%d bytes of commands wait at this node, and a command of %d bytes exceeds the %s's bound of %d bytes",
		over.held, r.bytes, over.bound, over.limit).
		With("bound", over.bound).With("limit_bytes", strconv.FormatInt(over.limit, 10)).
		WithRetryAfterMS(retryAfter(r.bytes).Milliseconds())
	if r.partition != noPartition {
		e.With("partition", strconv.FormatInt(r.partition, 10))
	}
	return e
}
