package admission

import (
	commandv1 "perdure/api/command/v1"
)

// Limits bounds the bytes of commands that a node holds: queued, in flight, or being forwarded to another
// node. Commands that begin work (starts, signals, new promises, graphs) get at most half of each bound. The
// other half is reserved for commands that finish work, so new work never excludes commits, settlements,
// heartbeats and messages between partitions.
type Limits struct {
	// PartitionBytes bounds one partition's commands on this node, NamespaceBytes one namespace's over all
	// partitions, NodeBytes all of them.
	PartitionBytes, NamespaceBytes, NodeBytes int64
}

// DefaultLimits are for a node with 500 MB of memory.
var DefaultLimits = Limits{PartitionBytes: 64 << 20, NamespaceBytes: 64 << 20, NodeBytes: 96 << 20}

// MinLimitBytes is the least value of each bound: half of it holds the largest command of either class (24
// MiB, the largest message of a client).
const MinLimitBytes = 64 << 20

// withDefaults replaces bounds of 0.
func (l Limits) withDefaults() Limits {
	for _, v := range []struct {
		bound *int64
		value int64
	}{{&l.PartitionBytes, DefaultLimits.PartitionBytes}, {&l.NamespaceBytes, DefaultLimits.NamespaceBytes}, {&l.NodeBytes, DefaultLimits.NodeBytes}} {
		if *v.bound == 0 {
			*v.bound = v.value
		}
	}
	return l
}

// workClass is whether a command begins work or finishes it.
type workClass uint8

const (
	beginsWork workClass = iota
	finishesWork
	workClasses
)

// BeginsWork reports whether a command begins work: it adds to the state what only a later command removes.
// Every other command frees space, ends something, or records what has already happened. A commit is one of these
// however large its results are: the step has acted, and would act again if the commit were refused.
func BeginsWork(cmd *commandv1.Command) bool { return classOf(cmd) == beginsWork }

// classOf returns a command's class. Bounds refuse commands that begin work first.
func classOf(cmd *commandv1.Command) workClass {
	switch cmd.Kind.(type) {
	case *commandv1.Command_Start, *commandv1.Command_Signal, *commandv1.Command_CreatePromise,
		*commandv1.Command_SubmitGraph, *commandv1.Command_RetryGraph:
		return beginsWork
	}
	return finishesWork
}

// Reservation is the bytes that one command holds of a ledger.
type Reservation struct {
	// partition is noPartition for a command that is forwarded to the partition's leader; namespace is "" for a
	// command of the cluster's own.
	partition int64
	namespace string
	class     workClass
	bytes     int64
}

// Bytes is how many bytes are reserved.
func (r Reservation) Bytes() int64 { return r.bytes }

// FinishesWork reports whether the command is of the class that bounds refuse last.
func (r Reservation) FinishesWork() bool { return r.class == finishesWork }

const noPartition = -1

// account is one bound of a ledger and what is reserved of it, by class:
//
//	0 <= held[beginsWork] <= limit/2
//	0 <= held[finishesWork]
//	held[beginsWork] + held[finishesWork] <= limit
type account struct {
	limit int64
	held  [workClasses]int64
}

func (a *account) total() int64 { return a.held[beginsWork] + a.held[finishesWork] }

// fits reports whether a Reservation is within the bound.
func (a *account) fits(r Reservation) bool {
	if r.class == beginsWork && a.held[beginsWork]+r.bytes > a.limit/2 {
		return false
	}
	return a.total()+r.bytes <= a.limit
}

// ledger accounts for the bytes of the commands that a node holds. It has no lock and no clock; admission guards
// it. Every account of it keeps its inequalities after each call.
type ledger struct {
	limits     Limits
	node       account
	partitions map[int64]*account
	namespaces map[string]*account
}

func newLedger(limits Limits) *ledger {
	return &ledger{limits: limits, node: account{limit: limits.NodeBytes}, partitions: map[int64]*account{}, namespaces: map[string]*account{}}
}

// overrun names the bound that a Reservation would exceed; the zero value names none.
type overrun struct {
	// bound is "partition", "namespace" or "node".
	bound       string
	held, limit int64
}

// accounts returns the accounts that a Reservation is charged to, the narrowest first.
func (l *ledger) accounts(r Reservation) (of [3]*account) {
	if r.partition != noPartition {
		of[0] = l.partitions[r.partition]
		if of[0] == nil {
			of[0] = &account{limit: l.limits.PartitionBytes}
			l.partitions[r.partition] = of[0]
		}
	}
	if r.namespace != "" {
		of[1] = l.namespaces[r.namespace]
		if of[1] == nil {
			of[1] = &account{limit: l.limits.NamespaceBytes}
			l.namespaces[r.namespace] = of[1]
		}
	}
	of[2] = &l.node
	return of
}

// reserve charges a Reservation to all of its accounts, or to none when it exceeds one of them.
func (l *ledger) reserve(r Reservation) (over overrun, ok bool) {
	of := l.accounts(r)
	for i, a := range of {
		if a != nil && !a.fits(r) {
			over = overrun{[...]string{"partition", "namespace", "node"}[i], a.total(), a.limit}
			l.forget(r)
			return over, false
		}
	}
	for _, a := range of {
		if a != nil {
			a.held[r.class] += r.bytes
		}
	}
	return overrun{}, true
}

// release returns what reserve has charged.
func (l *ledger) release(r Reservation) {
	for _, a := range l.accounts(r) {
		if a != nil {
			a.held[r.class] -= r.bytes
		}
	}
	l.forget(r)
}

// forget drops a namespace's empty account: clients choose the names, so empty ones must not accumulate.
func (l *ledger) forget(r Reservation) {
	if a := l.namespaces[r.namespace]; a != nil && a.total() == 0 {
		delete(l.namespaces, r.namespace)
	}
}

// held returns the bytes that a partition's commands hold; noPartition asks for the whole node.
func (l *ledger) held(partition int64) int64 {
	if partition == noPartition {
		return l.node.total()
	}
	if a := l.partitions[partition]; a != nil {
		return a.total()
	}
	return 0
}
