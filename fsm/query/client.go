package query

import (
	"bytes"
	"strings"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/recovery"
)

// clientTask answers a client's task and its promise.
func (x *Read) clientTask() (*commandv1.QueryReply, *api.Error) {
	ns, objectID := x.Query.Namespace, x.Query.Id
	task, ok := x.clientTaskOf(objectID)
	if !ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no client task %q in namespace %q", objectID, ns).
			With("namespace", ns).With("id", objectID).With("rule", recovery.RuleTask)
	}
	p, _ := x.promiseOf(objectID)
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_ClientTask{ClientTask: &perdurev1.ClientTaskResponse{
		Task: wire.EncodeClientTask(ns, task), Promise: wire.EncodePromise(ns, p)}}}, nil
}

// clientTaskOf returns a client's task as of the machine's clock.
func (x *Read) clientTaskOf(objectID string) (recovery.Task, bool) {
	task, ok := x.Task(x.Query.Namespace, objectID)
	if _, client := state.AddressOf(task.Target); !ok || !client {
		return recovery.Task{}, false
	}
	p, ok := x.Promise(x.Query.Namespace, objectID)
	return task.At(x.ClockMS, p), ok
}

// pageLimit is how many objects a page of a search has.
func pageLimit(limit uint32) int {
	if limit == 0 {
		return 100
	}
	return int(min(limit, 1000))
}

// pageBytes bounds the values of a page; the first one is in it, however large.
const pageBytes = 4 << 20

// objects visits the ids of a family in a namespace after one, at most ListBudget of them. It returns where the visit
// ended before the last, "" if it did not: the last id that fn has seen.
func (x *Read) objects(family keys.Family, after string, fn func(objectID string) (more bool)) (cursor string) {
	prefix := keys.Of(family, x.Query.Namespace)
	lower := prefix
	if after != "" {
		lower = append(keys.Of(family, x.Query.Namespace, after), 0)
	}
	scanned, last := 0, ""
	x.Scan(lower, keys.After(prefix), func(key, _ []byte) bool {
		objectID, _, err := keys.CutString(key[len(prefix):])
		if err != nil {
			state.PanicCorrupt(keys.NameOf(key), key, err)
		}
		if scanned++; scanned > x.ListBudget || !fn(objectID) {
			cursor = last
			return false
		}
		last = objectID
		return true
	})
	return cursor
}

// promises reads one partition's part of a search.
func (x *Read) promises(req *perdurev1.SearchPromisesRequest) *commandv1.QueryReply {
	out, limit, size := &perdurev1.SearchPromisesResponse{}, pageLimit(req.Limit), 0
	tags := wire.DecodeTags(req.Tags)
	want := wire.DecodePromiseState(req.State)
	out.Cursor = x.promiseIDs(req.Cursor, func(objectID string) bool {
		p, _ := x.promiseOf(objectID)
		_, internal := id.EntityOfTask(objectID)
		if internal || want != 0 && p.State != want || !hasTags(p, tags) {
			return true
		}
		if size += len(p.Param) + len(p.Value); len(out.Promises) == limit || len(out.Promises) > 0 && size > pageBytes {
			return false
		}
		out.Promises = append(out.Promises, wire.EncodePromise(x.Query.Namespace, p))
		return true
	})
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Promises{Promises: out}}
}

// hasTags reports whether a promise has all of these tags.
func hasTags(p recovery.Promise, tags []recovery.Tag) bool {
	user := recovery.Promise{Tags: state.UserTags(p.Tags)}
	for _, t := range tags {
		if v, ok := user.Tag(t.Key); !ok || v != t.Value {
			return false
		}
	}
	return true
}

// clientTasks reads one partition's part of a search.
func (x *Read) clientTasks(req *perdurev1.SearchClientTasksRequest) *commandv1.QueryReply {
	out, limit := &perdurev1.SearchClientTasksResponse{}, pageLimit(req.Limit)
	out.Cursor = x.objects(keys.Task, req.Cursor, func(objectID string) bool {
		task, ok := x.clientTaskOf(objectID)
		if !ok || req.State != 0 && wire.EncodeTaskState(task.State) != req.State {
			return true
		}
		if len(out.Tasks) == limit {
			return false
		}
		out.Tasks = append(out.Tasks, wire.EncodeClientTask(x.Query.Namespace, task))
		return true
	})
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_ClientTasks{ClientTasks: out}}
}

// messages lists what waits for an address.
func (x *Read) messages(req *commandv1.MessagesQuery) *commandv1.QueryReply {
	out := &commandv1.MessagesReply{}
	if req.Addresses {
		out.Addresses = x.addresses()
	} else {
		limit := pageLimit(req.Limit)
		out.Executes, out.ExecuteCursor = x.executes(req, limit)
		out.Unblocks, out.UnblockCursor = x.unblocks(req, limit)
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Messages{Messages: out}}
}

// underAddress visits the keys of a family under an address, and, if so asked, under those below it, after a cursor. mark
// begins each address in a key. It returns the last key before the one at which fn returned false; nil if it never did.
func (x *Read) underAddress(family keys.Family, mark string, req *commandv1.MessagesQuery, cursor []byte, fn func(key []byte) bool) (next []byte) {
	prefixes := [][]byte{keys.Of(family, x.Query.Namespace, mark+req.Address)}
	if req.Below {
		below := keys.Of(family, x.Query.Namespace, mark+req.Address+"/")
		prefixes = append(prefixes, below[:len(below)-2]) // without the string's terminator
	}
	last, stopped := cursor, false
	for _, prefix := range prefixes {
		lower, upper := prefix, keys.After(prefix)
		if len(cursor) > 0 && bytes.Compare(cursor, lower) >= 0 {
			lower = append(bytes.Clone(cursor), 0)
		}
		if bytes.Compare(lower, upper) >= 0 {
			continue
		}
		x.Scan(lower, upper, func(key, _ []byte) bool {
			if stopped = !fn(key); stopped {
				return false
			}
			last = bytes.Clone(key)
			return true
		})
		if stopped {
			return last
		}
	}
	return nil
}

// executes lists pending client tasks that were announced.
func (x *Read) executes(req *commandv1.MessagesQuery, limit int) (out []*commandv1.ExecuteMessage, next []byte) {
	next = x.underAddress(keys.Ready, state.ClientTarget(""), req, req.ExecuteCursor, func(key []byte) bool {
		rest := key[len(keys.Of(keys.Ready, x.Query.Namespace)):]
		target, _, err := keys.CutString(rest)
		if err != nil {
			state.PanicCorrupt("place in a queue", key, err)
		}
		_, objectID, err := keys.ParseReady(key, keys.Of(keys.Ready, x.Query.Namespace, target))
		if err != nil {
			state.PanicCorrupt("place in a queue", key, err)
		}
		task, ok := x.clientTaskOf(objectID)
		if !ok || task.State != recovery.TaskPending {
			return true // its deadline has passed
		}
		if len(out) == limit {
			return false
		}
		address, _ := state.AddressOf(target)
		out = append(out, &commandv1.ExecuteMessage{Address: address, Id: objectID, Version: task.Version})
		return true
	})
	return out, next
}

// unblocks lists the settled promises that an address is to be told of.
func (x *Read) unblocks(req *commandv1.MessagesQuery, limit int) (out []*commandv1.UnblockMessage, next []byte) {
	size := 0
	next = x.underAddress(keys.Unblock, "", req, req.UnblockCursor, func(key []byte) bool {
		address, objectID := unblockOf(key)
		p, ok := x.promiseOf(objectID)
		if !ok || !p.State.Settled() {
			return true // purged since
		}
		if size += len(p.Param) + len(p.Value); len(out) == limit || len(out) > 0 && size > pageBytes {
			return false
		}
		out = append(out, &commandv1.UnblockMessage{Address: address, Promise: wire.EncodePromise(x.Query.Namespace, p)})
		return true
	})
	return out, next
}

// unblockOf reads address and promise of an unblock's key.
func unblockOf(key []byte) (address, objectID string) {
	_, rest, err := keys.CutString(key[1:])
	if err == nil {
		address, rest, err = keys.CutString(rest)
	}
	if err == nil {
		objectID, _, err = keys.CutString(rest)
	}
	if err != nil {
		state.PanicCorrupt("unblock", key, err)
	}
	return address, objectID
}

// mostAddresses bounds a list of addresses.
const mostAddresses = 10_000

// addresses lists the addresses that messages wait for, each once: first those of executes, then the others.
func (x *Read) addresses() (out []string) {
	seen := map[string]bool{}
	for _, f := range []struct {
		family keys.Family
		mark   string
	}{{keys.Ready, state.ClientTarget("")}, {keys.Unblock, ""}} {
		prefix := keys.Of(f.family, x.Query.Namespace, f.mark)
		prefix = prefix[:len(prefix)-2] // without the string's terminator
		lower, upper := prefix, keys.After(prefix)
		for found := true; found && len(out) < mostAddresses; {
			found = false
			x.Scan(lower, upper, func(key, _ []byte) bool {
				name, _, err := keys.CutString(key[len(keys.Of(f.family, x.Query.Namespace)):])
				if err != nil {
					state.PanicCorrupt(keys.NameOf(key), key, err)
				}
				found, lower = true, keys.After(keys.Of(f.family, x.Query.Namespace, name))
				if address := strings.TrimPrefix(name, f.mark); !seen[address] {
					seen[address] = true
					out = append(out, address)
				}
				return false
			})
		}
	}
	return out
}

// snapshot reads a part of everything that a namespace has in the partition.
func (x *Read) snapshot(req *commandv1.SnapshotQuery) *commandv1.QueryReply {
	ns, out, limit := x.Query.Namespace, &commandv1.SnapshotReply{}, 1000
	if req.Limit > 0 {
		limit = int(min(req.Limit, 10_000))
	}
	size := 0
	out.Cursor = []byte(x.promiseIDs(string(req.Cursor), func(objectID string) bool {
		p, _ := x.Promise(ns, objectID)
		if size += len(p.Param) + len(p.Value); len(out.Promises) == limit || len(out.Promises) > 0 && size > pageBytes {
			return false
		}
		out.Promises = append(out.Promises, wire.EncodePromise(ns, p))
		if _, ok := x.Get(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, ns, objectID)); ok {
			out.PromiseTimers = append(out.PromiseTimers, &commandv1.SnapshotTimer{Id: objectID, AtMs: p.TimeoutAt})
		}
		for _, awaiter := range x.seconds(keys.Callback, objectID) {
			out.Callbacks = append(out.Callbacks, &commandv1.SnapshotPair{First: awaiter, Second: objectID})
		}
		for _, address := range x.seconds(keys.Listener, objectID) {
			out.Listeners = append(out.Listeners, &commandv1.SnapshotPair{First: objectID, Second: address})
		}
		task, ok := x.Task(ns, objectID)
		address, client := state.AddressOf(task.Target)
		if !ok || !client {
			return true
		}
		out.Tasks = append(out.Tasks, wire.EncodeClientTask(ns, task))
		if at, armed := task.Deadline(); armed {
			out.TaskTimers = append(out.TaskTimers, &commandv1.SnapshotTimer{Id: objectID, AtMs: at, Lease: task.State == recovery.TaskAcquired})
		}
		if _, announced := x.Get(keys.ReadyOf(ns, task.Target, task.RetryAt, objectID)); announced {
			out.Executes = append(out.Executes, &commandv1.ExecuteMessage{Address: address, Id: objectID, Version: task.Version})
		}
		return true
	}))
	if len(req.Cursor) == 0 {
		prefix := keys.Of(keys.Unblock, ns)
		x.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
			address, objectID := unblockOf(key)
			out.Unblocks = append(out.Unblocks, &commandv1.UnblockRef{Namespace: ns, Id: objectID, Address: address})
			return len(out.Unblocks) < mostAddresses
		})
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Snapshot{Snapshot: out}}
}

// seconds lists the second parts of a relation's pairs with a given first part.
func (x *Read) seconds(family keys.Family, first string) (out []string) {
	prefix := keys.Of(family, x.Query.Namespace, first)
	x.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		second, _, err := keys.CutString(key[len(prefix):])
		if err != nil {
			state.PanicCorrupt(keys.NameOf(key), key, err)
		}
		out = append(out, second)
		return true
	})
	return out
}
