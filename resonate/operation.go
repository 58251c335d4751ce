package resonate

import (
	"context"
	"encoding/json"
	"net/http"
)

// operation is one kind of request: it checks the request's data, has the Store perform it, and returns the answer's
// status and data.
type operation func(s *Server, ctx context.Context, e envelope) (status int, data any, err error)

// operations is the table of kinds.
var operations = map[string]operation{
	"promise.get":               getPromise,
	"promise.create":            createPromise,
	"promise.settle":            settlePromise,
	"promise.register_callback": registerCallback,
	"promise.register_listener": registerListener,
	"promise.search":            searchPromises,

	"task.get":       getTask,
	"task.create":    createTask,
	"task.acquire":   acquireTask,
	"task.release":   releaseTask,
	"task.suspend":   suspendTask,
	"task.fulfill":   fulfillTask,
	"task.fence":     fenceTask,
	"task.heartbeat": heartbeatTasks,
	"task.halt":      haltTask,
	"task.continue":  continueTask,
	"task.search":    searchTasks,

	"schedule.create": createSchedule,
	"schedule.get":    getSchedule,
	"schedule.delete": deleteSchedule,
	"schedule.search": searchSchedules,
}

// promiseData is the data of an answer with one promise.
type promiseData struct {
	Promise Promise `json:"promise"`
}

// preloadData is the data of an answer that continues a worker.
type preloadData struct {
	Preload []Promise `json:"preload"`
}

func onePromise(p Promise, err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	return statusOK, promiseData{p}, nil
}

func noData(err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	return statusOK, empty{}, nil
}

// fields reads the data of a request.
func (e envelope) fields() *object { return e.fieldsAs("data") }

// fieldsAs is fields with another name in errors.
func (e envelope) fieldsAs(what string) *object { return &object{what: what, fields: e.data} }

// idOnly reads data that is an id.
func idOnly(e envelope) (string, error) {
	data := e.fields()
	id := data.id("id")
	if data.err != nil {
		return "", data.err
	}
	return id, nil
}

func getPromise(s *Server, ctx context.Context, e envelope) (int, any, error) {
	id, err := idOnly(e)
	if err != nil {
		return 0, nil, err
	}
	return onePromise(s.store.Promise(ctx, id))
}

func createPromise(s *Server, ctx context.Context, e envelope) (int, any, error) {
	req, r := s.ids.newPromise("data", e.fields())
	if r != nil {
		return 0, nil, r
	}
	return onePromise(s.store.CreatePromise(ctx, req))
}

func settlePromise(s *Server, ctx context.Context, e envelope) (int, any, error) {
	req, r := settlement(e.fields())
	if r != nil {
		return 0, nil, r
	}
	return onePromise(s.store.SettlePromise(ctx, req))
}

// callback is the data of a register_callback.
type callback struct{ awaited, awaiter string }

func (s *Server) callback(data *object) (callback, *Refusal) {
	c := callback{awaited: data.id("awaited"), awaiter: data.id("awaiter")}
	switch {
	case data.err != nil:
		return c, data.err
	case c.awaited == c.awaiter:
		return c, bad("promise %q must not await itself", cut(c.awaited))
	case s.ids.origin(c.awaited) != s.ids.origin(c.awaiter):
		return c, bad("promise %q and its awaiter %q have different origins", cut(c.awaited), cut(c.awaiter))
	}
	return c, nil
}

func registerCallback(s *Server, ctx context.Context, e envelope) (int, any, error) {
	c, r := s.callback(e.fields())
	if r != nil {
		return 0, nil, r
	}
	return onePromise(s.store.RegisterCallback(ctx, c.awaited, c.awaiter))
}

func registerListener(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	awaited, address := data.id("awaited"), data.text("address")
	switch {
	case data.err != nil:
		return 0, nil, data.err
	case !validAddress(address):
		return 0, nil, bad("Invalid listener address")
	}
	return onePromise(s.store.RegisterListener(ctx, awaited, address))
}

func getTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	id, err := idOnly(e)
	if err != nil {
		return 0, nil, err
	}
	t, err := s.store.Task(ctx, id)
	if err != nil {
		return 0, nil, err
	}
	return statusOK, struct {
		Task Task `json:"task"`
	}{t}, nil
}

// heldData is the data of an answer to an acquire.
type heldData struct {
	Task    Task      `json:"task"`
	Promise Promise   `json:"promise"`
	Preload []Promise `json:"preload"`
}

func held(h Held, err error) (int, any, error) {
	if err != nil {
		return 0, nil, err
	}
	return statusOK, heldData{h.Task, h.Promise, preload(h.Preload)}, nil
}

// preload is a list that is never null.
func preload(promises []Promise) []Promise {
	if promises == nil {
		return []Promise{}
	}
	return promises
}

// lease reads who holds a task and for how long.
func lease(data *object) Lease {
	l := Lease{PID: data.text("pid"), TTL: data.number("ttl", 1, false)}
	if data.err == nil && l.PID == "" {
		data.fail("pid", "a non-empty string")
	}
	return l
}

// taskRef reads a task and its version.
func taskRef(data *object) TaskRef {
	return TaskRef{ID: data.id("id"), Version: uint64(data.number("version", 0, false))}
}

func createTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	l := lease(data)
	if data.err != nil {
		return 0, nil, data.err
	}
	action, r := nested(e, "data.action", data.fields.get("action"))
	if r != nil {
		return 0, nil, r
	}
	if action.kind != "promise.create" {
		return 0, nil, bad("data.action.kind must be promise.create")
	}
	req, r := s.ids.newPromise("data.action.data", action.fieldsAs("data.action.data"))
	switch _, delayed := req.Tags[tagDelay]; {
	case r != nil:
		return 0, nil, r
	case req.Target == "":
		return 0, nil, bad("a task needs the tag %s", tagTarget)
	case delayed:
		return 0, nil, bad("a task that is created acquired must not have the tag %s", tagDelay)
	}
	return held(s.store.CreateTask(ctx, req, l))
}

func acquireTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	ref, l := taskRef(data), lease(data)
	if data.err != nil {
		return 0, nil, data.err
	}
	return held(s.store.AcquireTask(ctx, ref, l))
}

func releaseTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	ref := taskRef(data)
	if data.err != nil {
		return 0, nil, data.err
	}
	return noData(s.store.ReleaseTask(ctx, ref))
}

func suspendTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	ref, actions := taskRef(data), data.list("actions")
	switch {
	case data.err != nil:
		return 0, nil, data.err
	case len(actions) == 0:
		return 0, nil, bad("data.actions must not be empty")
	case len(actions) > maxActions:
		return 0, nil, bad("data.actions has %d actions, at most %d are allowed", len(actions), maxActions)
	}
	awaited := make([]string, len(actions))
	for i, raw := range actions {
		c, r := s.suspendAction(e, ref.ID, raw)
		if r != nil {
			return 0, nil, r
		}
		awaited[i] = c.awaited
	}
	suspension, err := s.store.SuspendTask(ctx, ref, awaited)
	switch {
	case err != nil:
		return 0, nil, err
	case suspension.Waiting:
		return statusOK, empty{}, nil
	}
	return statusRedirect, preloadData{preload(suspension.Preload)}, nil
}

// suspendAction reads one register_callback within a suspend.
func (s *Server) suspendAction(e envelope, task string, raw json.RawMessage) (callback, *Refusal) {
	action, r := nested(e, "data.actions", raw)
	if r != nil {
		return callback{}, r
	}
	if action.kind != "promise.register_callback" {
		return callback{}, bad("data.actions.kind must be promise.register_callback")
	}
	data := action.fieldsAs("data.actions.data")
	if awaiter := data.id("awaiter"); data.err == nil && awaiter != task {
		return callback{}, bad("data.actions.data.awaiter must be %q", cut(task))
	}
	return s.callback(data)
}

func fulfillTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	ref := taskRef(data)
	if data.err != nil {
		return 0, nil, data.err
	}
	action, r := nested(e, "data.action", data.fields.get("action"))
	if r != nil {
		return 0, nil, r
	}
	if action.kind != "promise.settle" {
		return 0, nil, bad("data.action.kind must be promise.settle")
	}
	req, r := settlement(action.fieldsAs("data.action.data"))
	switch {
	case r != nil:
		return 0, nil, r
	case req.ID != ref.ID:
		return 0, nil, bad("data.action.data.id must be %q", cut(ref.ID))
	}
	return onePromise(s.store.FulfillTask(ctx, ref, req))
}

func fenceTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	ref := taskRef(data)
	if data.err != nil {
		return 0, nil, data.err
	}
	action, r := nested(e, "data.action", data.fields.get("action"))
	if r != nil {
		return 0, nil, r
	}
	var done response
	var err error
	switch inner := action.fieldsAs("data.action.data"); action.kind {
	case "promise.create":
		done, err = s.fenceCreate(ctx, ref, action, inner)
	case "promise.settle":
		done, err = s.fenceSettle(ctx, ref, action, inner)
	default:
		err = bad("data.action.kind must be promise.create or promise.settle")
	}
	if err != nil {
		return 0, nil, err
	}
	return statusOK, fenceData{done, []Promise{}}, nil
}

func (s *Server) fenceCreate(ctx context.Context, ref TaskRef, action envelope, data *object) (response, error) {
	req, r := s.ids.newPromise("data.action.data", data)
	if r != nil {
		return response{}, r
	}
	if r := notOwn(ref, req.ID); r != nil {
		return response{}, r
	}
	var p Promise
	err := s.holds(ctx, ref, req.ID)
	switch {
	case err == nil && s.ids.origin(req.ID) == s.ids.origin(ref.ID):
		p, err = s.store.FenceCreate(ctx, ref, req)
	case err == nil:
		p, err = s.store.CreatePromise(ctx, req)
	}
	return answer(action, statusOK, promiseData{p}), err
}

func (s *Server) fenceSettle(ctx context.Context, ref TaskRef, action envelope, data *object) (response, error) {
	req, r := settlement(data)
	if r != nil {
		return response{}, r
	}
	if r := notOwn(ref, req.ID); r != nil {
		return response{}, r
	}
	if s.ids.origin(req.ID) != s.ids.origin(ref.ID) {
		return response{}, bad("promise %q and the fencing task %q have different origins", cut(req.ID), cut(ref.ID))
	}
	p, err := s.store.FenceSettle(ctx, ref, req)
	if err == nil && p == nil {
		return answer(action, http.StatusNotFound, "Promise not found"), nil
	}
	if err != nil {
		return response{}, err
	}
	return answer(action, statusOK, promiseData{*p}), nil
}

// notOwn refuses a fence on the fencing task's own promise.
func notOwn(ref TaskRef, id string) *Refusal {
	if id == ref.ID {
		return bad("a fence must not name its own task %q", cut(id))
	}
	return nil
}

// holds checks the guard of a fence whose action is of another origin, and so maybe of another partition: the task is
// acquired at ref's version now. Such a create is not one step with its guard: a worker that loses its lease in between
// has created a promise, which the worker that follows it creates, too, and gets as it is.
func (s *Server) holds(ctx context.Context, ref TaskRef, id string) error {
	if s.ids.origin(id) == s.ids.origin(ref.ID) {
		return nil // the partition checks it within the step
	}
	t, err := s.store.Task(ctx, ref.ID)
	if err == nil && (t.State != "acquired" || t.Version != ref.Version) {
		err = refuse(http.StatusConflict, "task %q is %s at version %d, not acquired at %d", cut(ref.ID), t.State, t.Version, ref.Version)
	}
	return err
}

// fenceData is the data of an answer to a fence.
type fenceData struct {
	Action  response  `json:"action"`
	Preload []Promise `json:"preload"`
}

func heartbeatTasks(s *Server, ctx context.Context, e envelope) (int, any, error) {
	data := e.fields()
	pid, list := data.text("pid"), data.list("tasks")
	switch {
	case data.err != nil:
		return 0, nil, data.err
	case len(list) > maxHeartbeats:
		return 0, nil, bad("data.tasks has %d tasks, at most %d are allowed", len(list), maxHeartbeats)
	}
	refs := make([]TaskRef, len(list))
	for i, raw := range list {
		task := newObject("data.tasks", raw)
		refs[i] = taskRef(task)
		if task.err != nil {
			return 0, nil, task.err
		}
	}
	if len(refs) == 0 {
		return noData(nil)
	}
	return noData(s.store.Heartbeat(ctx, pid, refs))
}

func haltTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	id, err := idOnly(e)
	if err != nil {
		return 0, nil, err
	}
	return noData(s.store.HaltTask(ctx, id))
}

func continueTask(s *Server, ctx context.Context, e envelope) (int, any, error) {
	id, err := idOnly(e)
	if err != nil {
		return 0, nil, err
	}
	return noData(s.store.ContinueTask(ctx, id))
}
