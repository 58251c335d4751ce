package query

import (
	"math"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// Read is one read of a consistent state. Reads share nothing with the machine, so they may run concurrently
// with it. They show an object with an expired deadline as the machine's next entry will find it (recovery
// protocol, projection).
type Read struct {
	state.Must
	// ClockMS is the machine's clock, never a node's. A later entry could have an earlier stamp than a node's
	// clock and still settle a promise that a reader saw expire.
	ClockMS   int64
	Partition uint32
	Query     *commandv1.Query
	// ListBudget bounds the listing entries read per class.
	ListBudget int
	// Importing: the state is not complete, because a restore stores it. Each answer is then a refusal.
	Importing bool
}

// Answer answers a read over a state, at the machine's clock. partition is only reported. Refusals are
// in the reply; an error is of the storage.
func Answer(r state.Reader, partition uint32, q *commandv1.Query) (reply *commandv1.QueryReply, err error) {
	clock, err := state.MetaNumber(r, state.MetaClock)
	if err != nil {
		return nil, err
	}
	importing, err := state.MetaNumber(r, state.MetaImporting)
	if err != nil {
		return nil, err
	}
	x := &Read{Must: state.Must{From: r}, ClockMS: int64(clock), Partition: partition, Query: q, ListBudget: ListBudget, Importing: importing != 0}
	return x.Answer()
}

// Answer answers the read. Refusals are in the reply; an error is of the storage.
func (x *Read) Answer() (reply *commandv1.QueryReply, err error) {
	defer state.Catch(&err)
	if x.Importing {
		return refusal(wire.Restoring(x.Partition)), nil
	}
	var refused *api.Error
	switch k := x.Query.Kind.(type) {
	case *commandv1.Query_Describe:
		reply, refused = x.describe()
	case *commandv1.Query_Result:
		reply, refused = x.result()
	case *commandv1.Query_Journal:
		reply, refused = x.journal(k.Journal)
	case *commandv1.Query_List:
		reply, refused = x.list(k.List)
	case *commandv1.Query_Promise:
		reply, refused = x.promise()
	case *commandv1.Query_Task:
		reply, refused = x.task(k.Task)
	case *commandv1.Query_Export:
		reply, refused = x.export(k.Export)
	case *commandv1.Query_ImportHistory:
		reply, refused = x.importHistory(k.ImportHistory)
	case *commandv1.Query_Entity:
		reply, refused = x.entity()
	case *commandv1.Query_Entities:
		reply, refused = x.entities(k.Entities)
	case *commandv1.Query_EntityAnswer:
		reply, refused = x.entityAnswer()
	case *commandv1.Query_ClientTask:
		reply, refused = x.clientTask()
	case *commandv1.Query_Promises:
		reply = x.promises(k.Promises)
	case *commandv1.Query_ClientTasks:
		reply = x.clientTasks(k.ClientTasks)
	case *commandv1.Query_Messages:
		reply = x.messages(k.Messages)
	case *commandv1.Query_Snapshot:
		reply = x.snapshot(k.Snapshot)
	case *commandv1.Query_Schedule:
		reply, refused = x.schedule()
	case *commandv1.Query_Schedules:
		reply = x.schedules(k.Schedules)
	case *commandv1.Query_Held:
		reply = x.held(k.Held)
	case *commandv1.Query_Functions:
		reply = x.functions(k.Functions)
	case *commandv1.Query_GraphStatus:
		reply, refused = x.graphStatus()
	case *commandv1.Query_Graph:
		reply, refused = x.graph()
	case *commandv1.Query_NodeOutcome:
		reply, refused = x.nodeOutcome(k.NodeOutcome)
	default:
		refused = api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a query of an unknown kind")
	}
	if refused != nil {
		return refusal(refused), nil
	}
	return reply, nil
}

func refusal(refused *api.Error) *commandv1.QueryReply {
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Error{Error: wire.Refusal(refused).GetError()}}
}

// promiseOf returns a promise projected to the machine's clock, whether or not its expiration has run.
func (x *Read) promiseOf(objectID string) (recovery.Promise, bool) {
	p, ok := x.Promise(x.Query.Namespace, objectID)
	return p.At(x.ClockMS), ok
}

// entries reads a page of a journal: at most limit entries and about maxBytes.
func (x *Read) entries(h state.Header, from uint64, limit, maxBytes int) []*perdurev1.JournalEntry {
	if h.Events == from+1 && limit > 0 {
		// The journal's last entry alone needs no scan.
		if value, ok := x.Entry(x.Query.Namespace, &h, from); ok {
			return []*perdurev1.JournalEntry{entryOf(keys.JournalEntry(x.Query.Namespace, h.ID, h.Incarnation, from), value)}
		}
	}
	var out []*perdurev1.JournalEntry
	size := 0
	x.Entries(x.Query.Namespace, &h, from, math.MaxUint64, func(key, value []byte) bool {
		if len(out) > 0 && (len(out) >= limit || size+len(value) > maxBytes) {
			return false
		}
		out = append(out, entryOf(key, value))
		size += len(value)
		return true
	})
	return out
}

func entryOf(key, value []byte) *perdurev1.JournalEntry {
	entry, err := journal.DecodeEntry(value)
	if err != nil {
		state.PanicCorrupt("journal", key, err)
	}
	return wire.EncodeEntry(entry)
}

// status returns the status for readers: an execution with an expired deadline counts as ended before the
// expiration runs.
func (x *Read) status(h state.Header, p recovery.Promise) perdurev1.ExecutionStatus {
	if !h.Status.Terminal() && p.State.Settled() {
		return perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED
	}
	return wire.EncodeStatus(h.Status)
}
