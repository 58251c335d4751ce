package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/keys"
	"perdure/journal"
	"perdure/recovery"
)

// query is one read of a consistent state. Reads share nothing with the machine, so they may run beside
// it. An object whose deadline the machine's clock has passed is shown as its next entry will find it
// (recovery protocol, projection).
type query struct {
	r Reader
	// clock is the machine's, never a node's: what a node's clock alone has passed leaves no trace in the log, so
	// a later entry with an earlier stamp could still settle what a reader saw expire.
	clock     int64
	partition uint32
	q         *commandv1.Query
	// budget bounds how many listing entries of a class are looked at.
	budget int
}

// Query answers a read over a state, at the machine's clock. partition is only reported. Refusals are
// in the reply; an error is of the storage.
func Query(r Reader, partition uint32, q *commandv1.Query) (reply *commandv1.QueryReply, err error) {
	clock, err := metaNumber(r, metaClock)
	if err != nil {
		return nil, err
	}
	x := &query{r: r, clock: int64(clock), partition: partition, q: q, budget: listBudget}
	return x.answer()
}

func (x *query) answer() (reply *commandv1.QueryReply, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(fault)
			if !ok {
				panic(p)
			}
			reply, err = nil, f.err
		}
	}()
	var refused *api.Error
	switch k := x.q.Kind.(type) {
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
		return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Error{Error: refusal(refused).GetError()}}, nil
	}
	return reply, nil
}

func (x *query) get(key []byte) ([]byte, bool) {
	v, ok, err := x.r.Get(key)
	if err != nil {
		panic(fault{err})
	}
	return v, ok
}

func (x *query) scan(lower, upper []byte, fn func(key, value []byte) bool) {
	scan(x.r, lower, upper, fn)
}

func (x *query) header(objectID string) (Header, bool) {
	key := keys.Of(keys.Header, x.q.Namespace, objectID)
	b, ok := x.get(key)
	if !ok {
		return Header{}, false
	}
	h, err := decodeHeader(b)
	if err == nil && h.ID != objectID {
		err = misplaced(h.ID)
	}
	if err != nil {
		corrupt("execution header", key, err)
	}
	return h, true
}

// promiseOf is a promise at the machine's clock, whether or not an entry has settled it by its deadline yet.
func (x *query) promiseOf(objectID string) (recovery.Promise, bool) {
	p, ok := x.storedPromise(objectID)
	return p.At(x.clock), ok
}

func (x *query) storedPromise(objectID string) (recovery.Promise, bool) {
	key := keys.Of(keys.Promise, x.q.Namespace, objectID)
	b, ok := x.get(key)
	if !ok {
		return recovery.Promise{}, false
	}
	p, err := recovery.DecodePromise(b)
	if err == nil && p.ID != objectID {
		err = misplaced(p.ID)
	}
	if err != nil {
		corrupt("promise", key, err)
	}
	return p, true
}

func (x *query) taskOf(objectID string) (recovery.Task, bool) {
	key := keys.Of(keys.Task, x.q.Namespace, objectID)
	b, ok := x.get(key)
	if !ok {
		return recovery.Task{}, false
	}
	task, err := recovery.DecodeTask(b)
	if err == nil && task.ID != objectID {
		err = misplaced(task.ID)
	}
	if err != nil {
		corrupt("task", key, err)
	}
	return task, true
}

// entries reads a page of a journal: at most limit entries and about maxBytes.
func (x *query) entries(h Header, from uint64, limit, maxBytes int) []*perdurev1.JournalEntry {
	var out []*perdurev1.JournalEntry
	size := 0
	prefix := keys.JournalPrefix(x.q.Namespace, h.ID, h.Incarnation)
	x.scan(keys.JournalEntry(x.q.Namespace, h.ID, h.Incarnation, from), keys.After(prefix), func(key, value []byte) bool {
		if len(out) > 0 && (len(out) >= limit || size+len(value) > maxBytes) {
			return false
		}
		entry, err := journal.DecodeEntry(value)
		if err != nil {
			corrupt("journal", key, err)
		}
		out = append(out, EntryToWire(entry))
		size += len(value)
		return true
	})
	return out
}

// status is what a reader is shown: a finished promise whose deadline is not carried out yet is over.
func (x *query) status(h Header, p recovery.Promise) perdurev1.ExecutionStatus {
	if !h.Status.Terminal() && p.State.Settled() {
		return perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED
	}
	return statusToWire(h.Status)
}
