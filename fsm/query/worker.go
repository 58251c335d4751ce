package query

import (
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// held lists the tasks that a worker holds, or all that are held when no worker is named: every held
// task has a lease in the deadline index.
func (x *Read) held(req *commandv1.HeldQuery) *commandv1.QueryReply {
	reply := &commandv1.HeldReply{}
	if err := EachHeld(x.From, func(ns string, task recovery.Task) {
		if req.Worker == "" || task.PID == req.Worker {
			reply.Tasks = append(reply.Tasks, wire.Token(ns, task))
		}
	}); err != nil {
		panic(state.Fault{Err: err})
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Held{Held: reply}}
}

// Leased reports whether a state has leases, running or ended.
func Leased(r state.Reader) (bool, error) {
	lower, upper := keys.DeadlineBounds(keys.DeadlineLease, state.Never)
	_, ok, err := state.FirstDeadline(r, lower, upper)
	return ok, err
}

// EachHeld visits every task of a state that a worker holds.
func EachHeld(r state.Reader, fn func(ns string, task recovery.Task)) (err error) {
	defer state.Catch(&err)
	x := state.Must{From: r}
	lower, upper := keys.DeadlineBounds(keys.DeadlineLease, state.Never)
	x.Scan(lower, upper, func(key, _ []byte) bool {
		_, _, ns, objectID, err := keys.ParseDeadline(key)
		if err != nil {
			state.PanicCorrupt("deadline", key, err)
		}
		task, ok := x.Task(ns, objectID)
		if _, client := state.AddressOf(task.Target); ok && !client && task.State == recovery.TaskAcquired {
			fn(ns, task)
		}
		return true
	})
	return nil
}

// maxStuckRead bounds the stuck executions of a function that one query reads.
const maxStuckRead = 1000

// functions returns those of the requested functions for which a worker that attaches changes something: no worker has
// registered them in this partition, or none of its digest, or executions are stuck that other code gave back.
func (x *Read) functions(req *commandv1.FunctionsQuery) *commandv1.QueryReply {
	reply := &commandv1.FunctionsReply{}
	for _, fn := range req.Functions {
		key := keys.Of(keys.Function, x.Query.Namespace, fn)
		value, known := x.Get(key)
		if known && req.Digest != "" {
			digests, err := state.DecodeDigests(value)
			if err != nil {
				state.PanicCorrupt("digests of a function", key, err)
			}
			known = digests.Knows(req.Digest)
		}
		if !known || x.stuckBy(fn, req.Code) || x.stuckBy(state.FunctionCleanup+fn, req.Code) {
			reply.Unknown = append(reply.Unknown, fn)
		}
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Functions{Functions: reply}}
}

// stuckBy reports whether executions of a function are stuck that other code than this gave back.
func (x *Read) stuckBy(function, code string) (found bool) {
	prefix, n := keys.Of(keys.Stuck, x.Query.Namespace, function), 0
	x.Scan(prefix, keys.After(prefix), func(_, value []byte) bool {
		found = string(value) != code
		n++
		return !found && n < maxStuckRead
	})
	return found
}

// ReadyQueues lists the queues that have pending tasks for workers in a state.
func ReadyQueues(r state.Reader) ([]state.Queue, error) {
	var out []state.Queue
	lower := []byte{byte(keys.Ready)}
	upper := []byte{byte(keys.Ready) + 1}
	for {
		var found []byte
		var q state.Queue
		var target string
		var bad error
		err := r.Scan(lower, upper, func(key, _ []byte) bool {
			ns, rest, err := keys.CutString(key[1:])
			if err == nil {
				target, _, err = keys.CutString(rest)
				q = state.QueueOf(ns, target)
			}
			bad, found = err, append([]byte(nil), key...)
			return false
		})
		if err != nil {
			return nil, err
		}
		if bad != nil {
			return nil, &state.CorruptError{What: "place in a queue", Key: found, Detail: bad.Error()}
		}
		if found == nil {
			return out, nil
		}
		if _, client := state.AddressOf(target); !client {
			out = append(out, q)
		}
		lower = keys.After(keys.Of(keys.Ready, q.Namespace, target))
	}
}
