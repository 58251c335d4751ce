package machine

import (
	"slices"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/recovery"
)

// Effects are an entry's actions outside the state. The leader performs them; followers drop them. Performing
// one twice or losing one is harmless: a new leader derives them again from the state.
type Effects struct {
	// Ready names functions with a new pending task that no grant of this entry took.
	Ready []state.Queue
	// Assigned are the tasks acquired for grants of this entry.
	Assigned []Assignment
	// Cancelling are acquired tasks whose execution has a new cancel request.
	Cancelling []Assignment
	// Arrived are signals for executions whose tasks are acquired.
	Arrived []SignalArrival
	// Settled are promises that were settled.
	Settled []state.Ref
	// Executed are client tasks that have become pending: their addresses get an execute. The state has them until they
	// are acquired.
	Executed []Execute
	// Unblocked are the listeners to notify of a settled promise. The state has them until UnblocksDelivered.
	Unblocked []Unblock
	// Graphs are graph runs whose status has changed, for their watchers.
	Graphs []state.Ref
	// Outbox names partitions for which messages were written, each once.
	Outbox []uint32
	// Long are executions whose journals have reached Config.LongJournal entries in this entry.
	Long []state.Ref
	// Expired counts the tasks whose lease has ended for lack of a heartbeat.
	Expired int
	// Undelivered counts the signals of functions whose targets do not exist or have ended.
	Undelivered int
	// NextExpiration is the earliest deadline that this entry has added, in unix milliseconds; 0 when none.
	NextExpiration int64
}

// Assignment is a task and the worker that holds it.
type Assignment struct {
	Worker   string
	Function string
	Token    *perdurev1.TaskToken
	// First is what the worker needs for the task of an execution that begins or has waited; nil if the state has to be read
	// for that.
	First *First
}

// SignalArrival is a signal that the worker of a task may consume: the journal has it, and no wait for it.
type SignalArrival struct {
	Worker string
	Token  *perdurev1.TaskToken
	Name   string
	// Payload is as in the journal, of firstBytes at most.
	Payload    []byte
	DeliveryID uint64
}

// Execute tells an address of a pending client task, which a client should acquire at Version.
type Execute struct {
	Namespace, Address, ID string
	Version                uint64
}

// Unblock tells an address of a settled promise.
type Unblock struct {
	Namespace, ID, Address string
	Promise                recovery.Promise
}

// Result is the result of applying one entry.
type Result struct {
	// Replies answer the entry's commands, in their order.
	Replies []*commandv1.Reply
	Effects Effects
	// Cut is the cut that the partition enters by this entry: the state behind the entry is its checkpoint. 0: none.
	Cut uint64
}

func (fx *Effects) add(more *Effects) {
	fx.Ready = append(fx.Ready, more.Ready...)
	fx.Assigned = append(fx.Assigned, more.Assigned...)
	fx.Cancelling = append(fx.Cancelling, more.Cancelling...)
	fx.Arrived = append(fx.Arrived, more.Arrived...)
	fx.Settled = append(fx.Settled, more.Settled...)
	fx.Executed = append(fx.Executed, more.Executed...)
	fx.Unblocked = append(fx.Unblocked, more.Unblocked...)
	for _, run := range more.Graphs {
		if !slices.Contains(fx.Graphs, run) {
			fx.Graphs = append(fx.Graphs, run)
		}
	}
	for _, dst := range more.Outbox {
		if !slices.Contains(fx.Outbox, dst) {
			fx.Outbox = append(fx.Outbox, dst)
		}
	}
	fx.Long = append(fx.Long, more.Long...)
	fx.Expired += more.Expired
	fx.Undelivered += more.Undelivered
	fx.expiration(more.NextExpiration)
}

func (fx *Effects) expiration(at int64) {
	if at > 0 && (fx.NextExpiration == 0 || at < fx.NextExpiration) {
		fx.NextExpiration = at
	}
}
