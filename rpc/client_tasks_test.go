package rpc_test

import (
	"fmt"
	"slices"
	"testing"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// A client's promise with a target is created, acquired and fulfilled over the API; other clients see it.
func TestClientTasks(t *testing.T) {
	w, ctx := newWorld(t), soon(t)
	tasks := perdurev1.NewClientTasksClient(w.conn)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const far = 1 << 52
	var ids []string
	var held []*perdurev1.ClientTaskRef
	for i := range 7 {
		objectID := fmt.Sprintf("r%d", i)
		ids = append(ids, objectID)
		_, err := tasks.CreatePromise(ctx, &perdurev1.CreateClientPromiseRequest{Namespace: w.ns, Id: objectID, TimeoutAtMs: far,
			Param: &perdurev1.Value{Data: []byte("in")}, Tags: map[string]string{"resonate:target": "poll://any@g", "even": fmt.Sprint(i%2 == 0)}})
		must(err)
		got, err := tasks.Acquire(ctx, &perdurev1.AcquireClientTaskRequest{Namespace: w.ns, Id: objectID, Pid: "p", TtlMs: 60_000})
		must(err)
		if got.Task.State != perdurev1.TaskState_TASK_STATE_ACQUIRED || got.Task.Version != 1 || string(got.Promise.Param) != "in" {
			t.Fatalf("acquired %v", got)
		}
		held = append(held, &perdurev1.ClientTaskRef{Id: objectID, Version: 1})
	}
	// Heartbeats go to the partitions of all tasks.
	beat, err := tasks.Heartbeat(ctx, &perdurev1.HeartbeatClientTasksRequest{Namespace: w.ns, Pid: "p", Tasks: append(held, &perdurev1.ClientTaskRef{Id: "none"})})
	must(err)
	if len(beat.Held) != len(held) {
		t.Errorf("%d leases were extended, must be %d", len(beat.Held), len(held))
	}
	// A search goes over all partitions in the order of ids, page by page.
	var found []string
	cursor, pages := "", 0
	for more := true; more; more = cursor != "" {
		page, err := w.promises.Search(ctx, &perdurev1.SearchPromisesRequest{Namespace: w.ns, Limit: 2, Cursor: cursor})
		must(err)
		for _, p := range page.Promises {
			found = append(found, p.Id)
		}
		cursor = page.Cursor
		pages++
	}
	if !slices.Equal(found, ids) || pages < 4 {
		t.Errorf("found %q on %d pages, must be %q", found, pages, ids)
	}
	some, err := w.promises.Search(ctx, &perdurev1.SearchPromisesRequest{Namespace: w.ns, Tags: map[string]string{"even": "true"}})
	must(err)
	if len(some.Promises) != 4 || some.Cursor != "" {
		t.Errorf("%d promises with the tag, must be 4", len(some.Promises))
	}
	acquired, err := tasks.Search(ctx, &perdurev1.SearchClientTasksRequest{Namespace: w.ns, State: perdurev1.TaskState_TASK_STATE_ACQUIRED})
	must(err)
	if len(acquired.Tasks) != 7 {
		t.Errorf("%d acquired tasks, must be 7", len(acquired.Tasks))
	}
	// A child is created under the fence, and the task waits for it.
	_, err = tasks.Fence(ctx, &perdurev1.FenceClientTaskRequest{Namespace: w.ns, Id: "r0", Version: 1, Action: &perdurev1.FenceClientTaskRequest_Create{
		Create: &perdurev1.CreateClientPromiseRequest{Id: "r0:dff", TimeoutAtMs: far, Tags: map[string]string{"resonate:scope": "global"}}}})
	must(err)
	asleep, err := tasks.Suspend(ctx, &perdurev1.SuspendClientTaskRequest{Namespace: w.ns, Id: "r0", Version: 1, Awaited: []string{"r0:dff"}})
	must(err)
	if asleep.Task.State != perdurev1.TaskState_TASK_STATE_SUSPENDED {
		t.Fatalf("suspended %v", asleep)
	}
	// The native API settles the child, which resumes the task.
	_, err = w.promises.Settle(ctx, &perdurev1.SettlePromiseRequest{Namespace: w.ns, Id: "r0:dff", State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED,
		Value: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte("1")}}})
	must(err)
	again, err := tasks.Acquire(ctx, &perdurev1.AcquireClientTaskRequest{Namespace: w.ns, Id: "r0", Version: 1, Pid: "q", TtlMs: 60_000})
	must(err)
	done, err := tasks.Fulfill(ctx, &perdurev1.FulfillClientTaskRequest{Namespace: w.ns, Id: "r0", Version: again.Task.Version,
		State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED, Value: &perdurev1.Value{Data: []byte("out")}})
	must(err)
	if done.Task.State != perdurev1.TaskState_TASK_STATE_FULFILLED {
		t.Errorf("fulfilled %v", done)
	}
	p, err := w.promises.Get(ctx, &perdurev1.GetPromiseRequest{Namespace: w.ns, Id: "r0"})
	must(err)
	if string(p.Promise.Value.GetValue()) != "out" {
		t.Errorf("read %v", p)
	}

	refuse := func(what string, reason perdurev1.Reason, err error) {
		t.Helper()
		if !api.Is(err, reason) {
			t.Errorf("%s: %v, must be refused with %s", what, err, reason)
		}
	}
	bad := perdurev1.Reason_REASON_BAD_REQUEST
	_, err = tasks.CreatePromise(ctx, &perdurev1.CreateClientPromiseRequest{Namespace: w.ns, Id: "x", TimeoutAtMs: far, Tags: map[string]string{"resonate:target": "no address"}})
	refuse("a target that is no address", bad, err)
	_, err = tasks.CreatePromise(ctx, &perdurev1.CreateClientPromiseRequest{Namespace: w.ns, Id: "x", TimeoutAtMs: far, Tags: map[string]string{"\x00client": ""}})
	refuse("a reserved tag", bad, err)
	_, err = tasks.RegisterListener(ctx, &perdurev1.RegisterListenerRequest{Namespace: w.ns, Id: "r1", Address: "perdure:operation 1 x"})
	refuse("an address of the server's", bad, err)
	_, err = tasks.Acquire(ctx, &perdurev1.AcquireClientTaskRequest{Namespace: w.ns, Id: "r1", Version: 0, Pid: "q", TtlMs: 60_000})
	refuse("an acquired task", perdurev1.Reason_REASON_STALE_TASK, err)
	_, err = tasks.Get(ctx, &perdurev1.GetClientTaskRequest{Namespace: w.ns, Id: "none"})
	refuse("a missing task", perdurev1.Reason_REASON_PROMISE_NOT_FOUND, err)
	_, err = tasks.Acquire(ctx, &perdurev1.AcquireClientTaskRequest{Namespace: w.ns, Id: "r1", Version: 0, Pid: "q"})
	refuse("no lease", bad, err)
	_, err = tasks.Suspend(ctx, &perdurev1.SuspendClientTaskRequest{Namespace: w.ns, Id: "r1", Version: 1, Awaited: []string{"r2"}})
	refuse("another origin", bad, err)
	_, err = w.promises.Search(ctx, &perdurev1.SearchPromisesRequest{Namespace: w.ns, Limit: 1001})
	refuse("a page too long", bad, err)
}
