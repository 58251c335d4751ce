package jepsen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// The kinds of requests of the Resonate protocol that the workload sends.
const (
	promiseGet       = "promise.get"
	promiseCreate    = "promise.create"
	promiseSettle    = "promise.settle"
	registerCallback = "promise.register_callback"
	taskGet          = "task.get"
	taskCreate       = "task.create"
	taskAcquire      = "task.acquire"
	taskRelease      = "task.release"
	taskSuspend      = "task.suspend"
	taskFulfill      = "task.fulfill"
	taskFence        = "task.fence"
	taskHeartbeat    = "task.heartbeat"
	taskHalt         = "task.halt"
	taskContinue     = "task.continue"
)

// resonateVersion is the version of the protocol that requests name.
const resonateVersion = "2026-04-01"

// The tags that the protocol gives a meaning.
const resonateTarget, resonateTimer, resonateExternal = "resonate:target", "resonate:timer", "resonate:external"

// ResonateRequest is a request about the promises of one origin. Which fields count depends on Kind.
type ResonateRequest struct {
	Kind string
	// ID is the promise or task that the request is about; the awaited one of a register_callback.
	ID string
	// Version is that of the task, as the client knows it.
	Version uint64
	// PID and TTL (milliseconds) are the lease that a task.create or task.acquire asks for. A heartbeat has a PID.
	PID string
	TTL int64
	// Awaited are the promises of a suspend, Awaiter is the task of a register_callback.
	Awaited []string
	Awaiter string
	// Tasks are those of a heartbeat.
	Tasks []ResonateRef
	// Create or Settle is the content of the request, or of its action; a fence has one of them.
	Create *ResonateCreate
	Settle *ResonateSettle
}

// ResonateRef names a task at a version.
type ResonateRef struct {
	ID      string `json:"id"`
	Version uint64 `json:"version"`
}

// ResonateCreate is the data of a promise.create, ResonateSettle that of a promise.settle.
type (
	ResonateCreate struct {
		ID        string            `json:"id"`
		TimeoutAt int64             `json:"timeoutAt"`
		Param     ResonateValue     `json:"param"`
		Tags      map[string]string `json:"tags"`
	}
	ResonateSettle struct {
		ID    string        `json:"id"`
		State string        `json:"state"`
		Value ResonateValue `json:"value"`
	}
)

// ResonateValue is what a client gives a promise; Data nil is another value than the empty string.
type ResonateValue struct {
	Headers map[string]string `json:"headers,omitempty"`
	Data    *string           `json:"data,omitempty"`
}

// noValue is the value of a pending promise, in canonical form.
const noValue = "{}"

// canonical is the JSON of a value or of tags: equal ones have equal texts.
func canonical(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error() // strings always encode
	}
	return string(text)
}

// reads reports whether a request cannot change what a later answer shows: without an answer it says nothing. A
// heartbeat counts as one, because a lease that it did not extend may end sooner, which the checker then allows.
func (r ResonateRequest) reads() bool {
	return r.Kind == promiseGet || r.Kind == taskGet || r.Kind == taskHeartbeat
}

// data is the request's data as the protocol has it.
func (r ResonateRequest) data() any {
	type object = map[string]any
	action := func(kind string, data any) object { return object{"kind": kind, "head": object{}, "data": data} }
	switch r.Kind {
	case promiseCreate:
		return r.Create
	case promiseSettle:
		return r.Settle
	case registerCallback:
		return object{"awaited": r.ID, "awaiter": r.Awaiter}
	case taskCreate:
		return object{"pid": r.PID, "ttl": r.TTL, "action": action(promiseCreate, r.Create)}
	case taskAcquire:
		return object{"id": r.ID, "version": r.Version, "pid": r.PID, "ttl": r.TTL}
	case taskRelease:
		return object{"id": r.ID, "version": r.Version}
	case taskSuspend:
		var actions []object
		for _, awaited := range r.Awaited {
			actions = append(actions, action(registerCallback, object{"awaited": awaited, "awaiter": r.ID}))
		}
		return object{"id": r.ID, "version": r.Version, "actions": actions}
	case taskFulfill:
		return object{"id": r.ID, "version": r.Version, "action": action(promiseSettle, r.Settle)}
	case taskFence:
		inner := action(promiseSettle, r.Settle)
		if r.Create != nil {
			inner = action(promiseCreate, r.Create)
		}
		return object{"id": r.ID, "version": r.Version, "action": inner}
	case taskHeartbeat:
		return object{"pid": r.PID, "tasks": r.Tasks}
	}
	return object{"id": r.ID}
}

// String is short, for reports.
func (r ResonateRequest) String() string {
	out := r.Kind + " " + r.ID
	switch r.Kind {
	case taskAcquire, taskRelease, taskSuspend, taskFulfill, taskFence:
		out += fmt.Sprintf(" v%d", r.Version)
	}
	if r.Kind == taskHeartbeat {
		out = fmt.Sprintf("%s %v", r.Kind, r.Tasks)
	}
	if r.PID != "" {
		out += fmt.Sprintf(" by %s", r.PID)
	}
	if r.TTL != 0 {
		out += fmt.Sprintf(" for %d ms", r.TTL)
	}
	if len(r.Awaited) > 0 {
		out += fmt.Sprintf(" awaits %v", r.Awaited)
	}
	if r.Awaiter != "" {
		out += " awaited by " + r.Awaiter
	}
	if r.Create != nil {
		out += fmt.Sprintf(" create %s param=%s tags=%s", r.Create.ID, canonical(r.Create.Param), canonical(r.Create.Tags))
	}
	if r.Settle != nil {
		out += fmt.Sprintf(" settle %s to %s %s", r.Settle.ID, r.Settle.State, canonical(r.Settle.Value))
	}
	return out
}

// ResonateAnswer is what the checker compares of an answer: its status and its records. A record without an id is
// absent.
type ResonateAnswer struct {
	Status int
	// Action is the status of a fence's action.
	Action  int
	Promise ResonatePromise
	Task    ResonateTask
}

// String is short, for reports.
func (a ResonateAnswer) String() string {
	out := fmt.Sprint(a.Status)
	if a.Action != 0 {
		out += fmt.Sprintf(" (action %d)", a.Action)
	}
	if p := a.Promise; p.ID != "" {
		out += fmt.Sprintf(" promise %s %s param=%s value=%s created=%d settled=%d", p.ID, p.State, p.Param, p.Value, p.CreatedAt, p.SettledAt)
	}
	if t := a.Task; t.ID != "" {
		out += fmt.Sprintf(" task %s %s v%d resumes=%d pid=%s", t.ID, t.State, t.Version, t.Resumes, t.PID)
	}
	return out
}

// ResonatePromise is a promise record. Param, Value and Tags are canonical JSON. Times are Unix milliseconds; SettledAt is
// 0 while the promise is pending.
type ResonatePromise struct {
	ID, State, Param, Value, Tags   string
	TimeoutAt, CreatedAt, SettledAt int64
}

// ResonateTask is a task record; PID and TTL are set only while the task is acquired.
type ResonateTask struct {
	ID, State string
	Version   uint64
	Resumes   int
	PID       string
	TTL       int64
}

// UnmarshalJSON reads the protocol's PromiseRecord, and refuses one that lacks a field or has another.
func (p *ResonatePromise) UnmarshalJSON(text []byte) error {
	var in struct {
		ID        *string            `json:"id"`
		State     *string            `json:"state"`
		Param     *ResonateValue     `json:"param"`
		Value     *ResonateValue     `json:"value"`
		Tags      *map[string]string `json:"tags"`
		TimeoutAt *int64             `json:"timeoutAt"`
		CreatedAt *int64             `json:"createdAt"`
		SettledAt int64              `json:"settledAt"`
	}
	if err := strictly(text, &in); err != nil {
		return err
	}
	if in.ID == nil || in.State == nil || in.Param == nil || in.Value == nil || in.Tags == nil || in.TimeoutAt == nil || in.CreatedAt == nil {
		return fmt.Errorf("promise record lacks a field: %s", text)
	}
	*p = ResonatePromise{ID: *in.ID, State: *in.State, Param: canonical(in.Param), Value: canonical(in.Value), Tags: canonical(in.Tags),
		TimeoutAt: *in.TimeoutAt, CreatedAt: *in.CreatedAt, SettledAt: in.SettledAt}
	return nil
}

// UnmarshalJSON reads the protocol's TaskRecord, and refuses one that lacks a field or has another.
func (t *ResonateTask) UnmarshalJSON(text []byte) error {
	var in struct {
		ID      *string `json:"id"`
		State   *string `json:"state"`
		Version *uint64 `json:"version"`
		Resumes *int    `json:"resumes"`
		PID     string  `json:"pid"`
		TTL     int64   `json:"ttl"`
	}
	if err := strictly(text, &in); err != nil {
		return err
	}
	if in.ID == nil || in.State == nil || in.Version == nil || in.Resumes == nil {
		return fmt.Errorf("task record lacks a field: %s", text)
	}
	*t = ResonateTask{ID: *in.ID, State: *in.State, Version: *in.Version, Resumes: *in.Resumes, PID: in.PID, TTL: in.TTL}
	return nil
}

// strictly decodes JSON that has no unknown field.
func strictly(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// resonateEnvelope is a request, an answer, or an action within either.
type resonateEnvelope struct {
	Kind string          `json:"kind"`
	Head resonateHead    `json:"head"`
	Data json.RawMessage `json:"data"`
}

type resonateHead struct {
	CorrID  string `json:"corrId"`
	Status  int    `json:"status,omitempty"`
	Version string `json:"version"`
}

// answerOf reads the answer to a request. The error says what no correct server answers.
func (r ResonateRequest) answerOf(httpStatus int, body []byte, corrID string) (ResonateAnswer, error) {
	var e resonateEnvelope
	if err := strictly(body, &e); err != nil {
		return ResonateAnswer{}, err
	}
	if e.Kind != r.Kind || e.Head != (resonateHead{CorrID: corrID, Status: httpStatus, Version: resonateVersion}) {
		return ResonateAnswer{}, fmt.Errorf("envelope %q %+v with the HTTP status %d answers %q with corrId %q", e.Kind, e.Head, httpStatus, r.Kind, corrID)
	}
	a := ResonateAnswer{Status: e.Head.Status}
	if a.Status != http.StatusOK && a.Status != http.StatusMultipleChoices {
		var message string
		return a, strictly(e.Data, &message)
	}
	var data struct {
		Promise *ResonatePromise   `json:"promise"`
		Task    *ResonateTask      `json:"task"`
		Preload *[]json.RawMessage `json:"preload"`
		Action  *resonateEnvelope  `json:"action"`
	}
	if err := strictly(e.Data, &data); err != nil {
		return a, err
	}
	// No promise of the workload has a branch, so nothing is preloaded.
	preloads := r.Kind == taskCreate || r.Kind == taskAcquire || r.Kind == taskFence || a.Status == http.StatusMultipleChoices
	if (data.Preload != nil) != preloads || preloads && len(*data.Preload) > 0 {
		return a, fmt.Errorf("data has another preload than it must: %s", e.Data)
	}
	if data.Promise != nil {
		a.Promise = *data.Promise
	}
	if data.Task != nil {
		a.Task = *data.Task
	}
	if data.Action == nil {
		return a, nil
	}
	if a.Action = data.Action.Head.Status; a.Action != http.StatusOK {
		var message string
		return a, strictly(data.Action.Data, &message)
	}
	var inner struct {
		Promise ResonatePromise `json:"promise"`
	}
	err := strictly(data.Action.Data, &inner)
	a.Promise = inner.Promise
	return a, err
}

// ResonateOp is one request to a node and its answer. Only requests that may have taken place are in a history.
type ResonateOp struct {
	Client int
	Node   string
	ResonateRequest
	// Called and Answered are times of one monotonic clock.
	Called, Answered time.Duration
	// Open says that there was no answer, or that the server does not know one: the request may have taken place at any
	// time after Called, or may still do so, or never.
	Open   bool
	Answer ResonateAnswer
}

// String is one line of a report.
func (o ResonateOp) String() string {
	end, seen := fmt.Sprintf("%.6f", o.Answered.Seconds()), o.Answer.String()
	if o.Open {
		end, seen = "open", "?"
	}
	return fmt.Sprintf("client %d at %s, %.6f to %s: %s -> %s", o.Client, o.Node, o.Called.Seconds(), end, o.ResonateRequest, seen)
}

// send sends a request to a node, and blocks until it is answered or ctx ends. The error says why there is no answer;
// with the fate Acked it says what the answer has that no correct server gives.
func (r ResonateRequest) send(ctx context.Context, cl *http.Client, url, corrID string) (ResonateAnswer, WriteFate, error) {
	data, err := json.Marshal(r.data())
	if err != nil {
		return ResonateAnswer{}, NotDone, err
	}
	body := canonical(resonateEnvelope{Kind: r.Kind, Head: resonateHead{CorrID: corrID, Version: resonateVersion}, Data: data})
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return ResonateAnswer{}, NotDone, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := cl.Do(req)
	if err != nil {
		if !connected.Load() {
			return ResonateAnswer{}, NotDone, err
		}
		return ResonateAnswer{}, Open, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ResonateAnswer{}, Open, err
	}
	if resp.StatusCode == http.StatusServiceUnavailable && !json.Valid(text) {
		return ResonateAnswer{}, NotDone, fmt.Errorf("%s", text) // a node that has no cluster yet
	}
	a, err := r.answerOf(resp.StatusCode, text, corrID)
	if err != nil {
		return a, Acked, err
	}
	switch a.Status {
	case http.StatusOK, http.StatusMultipleChoices, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity:
		return a, Acked, nil
	case http.StatusServiceUnavailable: // the server does not know the outcome
		return a, Open, fmt.Errorf("%s", text)
	}
	return a, Acked, fmt.Errorf("%s", text)
}
