package machine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
)

// The guards of clients' commands. A refused one has changed nothing, which world.refused checks.

const (
	malformed   = perdurev1.Reason_REASON_BAD_REQUEST
	malformedID = perdurev1.Reason_REASON_BAD_ID
	notFound    = perdurev1.Reason_REASON_PROMISE_NOT_FOUND
	conflict    = perdurev1.Reason_REASON_STALE_TASK
	unfit       = perdurev1.Reason_REASON_RULE_BROKEN
	executions  = perdurev1.Reason_REASON_NOT_SETTLEABLE
	unsettled   = perdurev1.PromiseState_PROMISE_STATE_PENDING
)

// held makes the task of a client's promise that process p holds at version 1.
func (w *world) held(objectID string) {
	w.t.Helper()
	w.step(&perdurev1.CreateClientTaskRequest{Promise: clientPromise(objectID, 1_000_000, state.TagTarget, worker), Pid: "p", TtlMs: 100_000})
}

// external makes a client's promise that others may wait for.
func (w *world) external(objectID string) {
	w.t.Helper()
	w.step(clientPromise(objectID, 900_000, state.TagExternal, "true"))
}

func fenceCreate(objectID string, version uint64, create *perdurev1.CreateClientPromiseRequest) *perdurev1.FenceClientTaskRequest {
	return &perdurev1.FenceClientTaskRequest{Id: objectID, Version: version, Action: &perdurev1.FenceClientTaskRequest_Create{Create: create}}
}

func fenceSettle(objectID string, version uint64, other string, to perdurev1.PromiseState) *perdurev1.FenceClientTaskRequest {
	return &perdurev1.FenceClientTaskRequest{Id: objectID, Version: version, Action: &perdurev1.FenceClientTaskRequest_Settle{
		Settle: &perdurev1.SettleClientPromiseRequest{Id: other, State: to}}}
}

func await(objectID string, version uint64, awaited ...string) *perdurev1.SuspendClientTaskRequest {
	return &perdurev1.SuspendClientTaskRequest{Id: objectID, Version: version, Awaited: awaited}
}

// A client's promise has a form that no other promise can be taken for.
func TestClientPromiseGuards(t *testing.T) {
	w := newWorld(t, 1)
	w.begin("e", "f")
	good := func() *perdurev1.CreateClientPromiseRequest {
		return clientPromise("x", 90_000, state.TagTarget, worker)
	}
	for name, c := range map[string]struct {
		spoil  func(*perdurev1.CreateClientPromiseRequest)
		reason perdurev1.Reason
	}{
		"a tag of the server":         {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags["\x00client"] = "" }, malformed},
		"a negative deadline":         {func(r *perdurev1.CreateClientPromiseRequest) { r.TimeoutAtMs = -1 }, malformed},
		"a deadline after all times":  {func(r *perdurev1.CreateClientPromiseRequest) { r.TimeoutAtMs = state.Never + 1 }, malformed},
		"a creation before all times": {func(r *perdurev1.CreateClientPromiseRequest) { r.CreatedAtMs = -1 }, malformed},
		"an empty target":             {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags[state.TagTarget] = "" }, malformed},
		"a target with a NUL":         {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags[state.TagTarget] = "poll://any@g\x00" }, malformed},
		"a long target": {func(r *perdurev1.CreateClientPromiseRequest) {
			r.Tags[state.TagTarget] = strings.Repeat("x", id.MaxIDBytes+1)
		}, malformed},
		"the address of an asker":       {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags[state.TagTarget] = askerScheme + "x" }, malformed},
		"a delay that is no number":     {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags[state.TagDelay] = "soon" }, malformed},
		"a negative delay":              {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags[state.TagDelay] = "-1" }, malformed},
		"a delay until the deadline":    {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags[state.TagDelay] = "90000" }, malformed},
		"a delay without a target":      {func(r *perdurev1.CreateClientPromiseRequest) { r.Tags = map[string]string{state.TagDelay: "5000"} }, malformed},
		"data that is not of its form":  {func(r *perdurev1.CreateClientPromiseRequest) { r.Param.Form = perdurev1.DataForm_DATA_FORM_EMPTY }, malformed},
		"an unknown form of data":       {func(r *perdurev1.CreateClientPromiseRequest) { r.Param.Form = 77 }, malformed},
		"an id with a NUL":              {func(r *perdurev1.CreateClientPromiseRequest) { r.Id = "a\x00" }, malformedID},
		"the id of an execution's step": {func(r *perdurev1.CreateClientPromiseRequest) { r.Id = "e:0" }, malformedID},
		"the id of a call to an entity": {func(r *perdurev1.CreateClientPromiseRequest) { r.Id = id.EntityCall("acc@a", "00") }, malformedID},
		"the id of an entity's batch":   {func(r *perdurev1.CreateClientPromiseRequest) { r.Id = id.EntityTask("acc@a") }, malformedID},
	} {
		t.Run(name, func(t *testing.T) {
			req := good()
			c.spoil(req)
			w.refused(clientCmd(req), c.reason)
			w.refused(clientCmd(&perdurev1.CreateClientTaskRequest{Promise: req, Pid: "p", TtlMs: 1}), c.reason)
			if req.Id == "x" {
				req.Id = "h:0"
			}
			w.refused(clientCmd(fenceCreate("h", 1, req)), c.reason) // before the task that there is not
		})
	}
	// An id that only looks like a step's is free, and an existing promise is answered as it is.
	w.step(clientPromise("none:0", 90_000, state.TagExternal, "true"))
	if p := w.step(clientPromise("none:0", 5)).GetPromise().Promise; p.TimeoutAtMs != 90_000 {
		t.Errorf("an existing promise is answered as %v", p)
	}
	early := clientPromise("early", 90_000)
	early.CreatedAtMs = 500
	if p := w.step(early).GetPromise().Promise; p.CreatedAtMs != 500 {
		t.Errorf("created at %d, want 500", p.CreatedAtMs)
	}
}

// Requests of clients reach no task of an execution, whatever version they name.
func TestClientsReachNoExecution(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	version := v.token.Version
	for _, req := range []any{
		acquire("e", version), &perdurev1.ReleaseClientTaskRequest{Id: "e", Version: version}, &perdurev1.HaltClientTaskRequest{Id: "e"},
		&perdurev1.ContinueClientTaskRequest{Id: "e"}, &perdurev1.FulfillClientTaskRequest{Id: "e", Version: version, State: resolve},
		await("e", version, "e:x"), fenceCreate("e", version, clientPromise("other", 5000)), fenceSettle("e", version, "other", resolve),
	} {
		w.refused(clientCmd(req), notFound)
	}
	w.refused(clientCmd(&perdurev1.CreateClientTaskRequest{Promise: clientPromise("e", 90_000, state.TagTarget, worker), Pid: "p", TtlMs: 1}), unfit)
	w.refused(clientCmd(&perdurev1.SettleClientPromiseRequest{Id: "e", State: resolve}), executions)
	w.external("e:x")
	w.refused(clientCmd(&perdurev1.RegisterCallbackRequest{Id: "e:x", Awaiter: "e"}), unfit)
	if held := w.step(&perdurev1.HeartbeatClientTasksRequest{Pid: "w1", Tasks: []*perdurev1.ClientTaskRef{{Id: "e", Version: version}}}).GetClientHeartbeat().Held; len(held) != 0 {
		t.Errorf("a client extends the lease of an execution: %v", held)
	}
	w.commit(v, "return out") // its worker's right is untouched
}

// The guards of a held task come in the protocol's order: the request's form, a missing task, its state and version, what
// the operation asks for.
func TestClientTaskGuards(t *testing.T) {
	w := newWorld(t, 1)
	w.held("r")
	w.external("r:0")
	w.external("other")
	w.step(clientPromise("r:local", 900_000))
	const never = math.MaxUint64
	for _, version := range []uint64{0, 2, math.MaxInt64, never} {
		for _, req := range []any{
			&perdurev1.ReleaseClientTaskRequest{Id: "r", Version: version}, await("r", version, "r:0"),
			&perdurev1.FulfillClientTaskRequest{Id: "r", Version: version, State: resolve}, fenceCreate("r", version, clientPromise("r:1", 5000)),
			fenceSettle("r", version, "r:0", resolve),
		} {
			w.refused(clientCmd(req), conflict)
		}
	}
	for _, c := range []struct {
		req    any
		reason perdurev1.Reason
	}{
		{await("r", 1), malformed},
		{await("r", 1, "r"), malformed},
		{await("r", 1, "r:0", "other"), malformed},
		{await("none", 1, "other"), malformed},
		{await("none", 1, "none:0"), notFound},
		{await("r", 2, "r:none"), conflict},
		{await("r", 1, "r:none"), unfit},
		{await("r", 1, "r:0", "r:local"), unfit},
		{await("r", 1, slices.Repeat([]string{"r:0"}, maxAwaited+1)...), malformed},
		{fenceCreate("r", 1, clientPromise("r", 5000)), malformed},
		{fenceSettle("r", 1, "r", resolve), malformed},
		{fenceSettle("r", 1, "r:0", unsettled), malformed},
		{fenceSettle("r", 7, "r:0", unsettled), malformed},
		{fenceSettle("none", 1, "r:0", resolve), notFound},
		{fenceCreate("none", 1, clientPromise("r:1", -1)), malformed},
		{&perdurev1.FulfillClientTaskRequest{Id: "r", Version: 1, State: unsettled}, malformed},
		{&perdurev1.FulfillClientTaskRequest{Id: "none", Version: 1, State: resolve}, notFound},
		{&perdurev1.FulfillClientTaskRequest{Id: "r", Version: 1, State: resolve, Value: &perdurev1.Value{Data: []byte("x"), Form: perdurev1.DataForm_DATA_FORM_EMPTY}}, malformed},
		{&perdurev1.SettleClientPromiseRequest{Id: "none", State: unsettled}, malformed},
		{&perdurev1.SettleClientPromiseRequest{Id: "none", State: resolve}, notFound},
		{&perdurev1.SettleClientPromiseRequest{Id: "r:0", State: resolve, Value: &perdurev1.Value{Form: 77}}, malformed},
		{&perdurev1.RegisterCallbackRequest{Id: "other", Awaiter: "r"}, malformed},
		{&perdurev1.RegisterCallbackRequest{Id: "r:none", Awaiter: "r"}, notFound},
		{&perdurev1.RegisterCallbackRequest{Id: "r:0", Awaiter: "r:none"}, unfit},
		{&perdurev1.RegisterCallbackRequest{Id: "r:0", Awaiter: "r:local"}, unfit},
		{&perdurev1.RegisterCallbackRequest{Id: "r:local", Awaiter: "r"}, unfit},
		{&perdurev1.RegisterListenerRequest{Id: "r:0", Address: ""}, malformed},
		{&perdurev1.RegisterListenerRequest{Id: "r:0", Address: "x\x00"}, malformed},
		{&perdurev1.RegisterListenerRequest{Id: "r:0", Address: askerScheme + "x"}, malformed},
		{&perdurev1.RegisterListenerRequest{Id: "r:none", Address: "poll://uni@g/c"}, notFound},
		{&perdurev1.RegisterListenerRequest{Id: "r:local", Address: "poll://uni@g/c"}, unfit},
		{acquire("r", 1), conflict},
		{&perdurev1.ContinueClientTaskRequest{Id: "r"}, conflict},
		{&perdurev1.HaltClientTaskRequest{Id: "none"}, notFound},
	} {
		w.refused(clientCmd(c.req), c.reason)
	}
	// What a fence does for its holder.
	if p := w.step(fenceCreate("r", 1, clientPromise("r:1", 5000))).GetFence().Promise; p.GetId() != "r:1" {
		t.Errorf("fenced %v", p)
	}
	if got := w.step(fenceSettle("r", 1, "r:none", resolve)).GetFence(); got.Promise != nil {
		t.Errorf("a promise that there is not was settled: %v", got)
	}
	if p := w.step(fenceSettle("r", 1, "r:1", resolve)).GetFence().Promise; p.GetState() != resolve {
		t.Errorf("fenced %v", p)
	}
	w.step(await("r", 1, "r:0", "r:0"))
	w.taskIs("r", "r suspended v1")
}

// A command reaches no object of another partition.
func TestClientsOfOnePartition(t *testing.T) {
	w := newWorld(t, 2)
	here := near(w, w.parts[0], "r")
	there := near(w, w.parts[1], "s")
	w.held(here)
	w.held(there)
	w.refused(clientCmd(fenceCreate(here, 1, clientPromise(there+":0", 5000))), malformed)
	w.refused(clientCmd(fenceSettle(here, 1, there, resolve)), malformed)
	cmd := clientCmd(&perdurev1.HeartbeatClientTasksRequest{Pid: "p", Tasks: []*perdurev1.ClientTaskRef{{Id: here, Version: 1}, {Id: there, Version: 1}}})
	held := w.do(cmd).GetClientHeartbeat().Held
	if len(held) != 1 || held[0].Id != here {
		t.Errorf("the heartbeat extends %v", held)
	}
}

// A heartbeat extends what its process holds at the version, and ignores the rest.
func TestClientHeartbeat(t *testing.T) {
	w := newWorld(t, 1)
	w.held("a")
	w.held("b")
	w.now = 2000
	beat := func(pid string, refs ...*perdurev1.ClientTaskRef) string {
		var out []string
		for _, r := range w.step(&perdurev1.HeartbeatClientTasksRequest{Pid: pid, Tasks: refs}).GetClientHeartbeat().Held {
			out = append(out, r.Id)
		}
		return fmt.Sprint(out)
	}
	a, b := &perdurev1.ClientTaskRef{Id: "a", Version: 1}, &perdurev1.ClientTaskRef{Id: "b", Version: 1}
	if got := beat("p", a, b, &perdurev1.ClientTaskRef{Id: "none", Version: 1}); got != "[a b]" {
		t.Errorf("held %s", got)
	}
	w.taskIs("a", "a acquired v1 p/100000 until 102000")
	w.now = 3000
	if got := beat("q", a, b); got != "[]" {
		t.Errorf("another process holds %s", got)
	}
	if got := beat("p", &perdurev1.ClientTaskRef{Id: "a", Version: 2}, b); got != "[b]" {
		t.Errorf("held %s", got)
	}
	w.taskIs("a", "a acquired v1 p/100000 until 102000")
}

// An unblock is kept for its time and no longer.
func TestUnblockExpires(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parts[0]
	w.external("x")
	w.step(&perdurev1.RegisterListenerRequest{Id: "x", Address: "poll://uni@g/c"})
	w.step(&perdurev1.SettleClientPromiseRequest{Id: "x", State: resolve}, "unblock x resolved at poll://uni@g/c")
	w.now += state.MaxUnblockAgeMS - 1
	w.tick()
	if n := rows(p, keys.Unblock); n != 1 {
		t.Fatalf("%d unblocks before their time is over", n)
	}
	w.now++
	w.tick()
	if n := rows(p, keys.Unblock, keys.Deadline); n != 0 {
		t.Fatalf("%d keys are left after their time is over", n)
	}
}
