package resonate

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

// stored returns a value as partitions have it: bytes, if its data is bytes in base64, so that clients of the native API
// read what the SDK encoded; else text.
func (v Value) stored() *perdurev1.Value {
	out := &perdurev1.Value{Headers: v.Headers}
	switch {
	case v.Data == nil:
	case *v.Data == "":
		out.Form = perdurev1.DataForm_DATA_FORM_EMPTY
	default:
		b, err := base64.StdEncoding.Strict().DecodeString(*v.Data)
		if err != nil || base64.StdEncoding.EncodeToString(b) != *v.Data { // line breaks within are lost by decoding
			out.Form, out.Data = perdurev1.DataForm_DATA_FORM_TEXT, []byte(*v.Data)
			break
		}
		out.Data = b
	}
	return out
}

// valueOf is the inverse of stored.
func valueOf(data []byte, form perdurev1.DataForm, headers map[string]string) Value {
	v := Value{Headers: headers}
	var text string
	switch form {
	case perdurev1.DataForm_DATA_FORM_EMPTY:
	case perdurev1.DataForm_DATA_FORM_TEXT:
		text = string(data)
	default:
		if len(data) == 0 {
			return v
		}
		text = base64.StdEncoding.EncodeToString(data)
	}
	v.Data = &text
	return v
}

// outcomeValue is the value of a settled promise. A failure that a client of the native API or an execution gave is an
// error as the SDKs encode it.
func outcomeValue(o *perdurev1.Outcome) Value {
	f := o.GetFailure()
	if f == nil {
		return valueOf(o.GetValue(), o.GetForm(), o.GetHeaders())
	}
	if len(f.Details) > 0 || o.Form != perdurev1.DataForm_DATA_FORM_UNSPECIFIED || len(o.Headers) > 0 {
		return valueOf(f.Details, o.Form, o.Headers)
	}
	if f.Message == "" && f.Type == "" {
		return Value{}
	}
	encoded, err := json.Marshal(map[string]string{"__type": "error", "name": f.Type, "message": f.Message})
	if err != nil {
		return Value{} // strings always encode
	}
	return valueOf(encoded, perdurev1.DataForm_DATA_FORM_UNSPECIFIED, nil)
}

var promiseStateNames = map[perdurev1.PromiseState]string{
	perdurev1.PromiseState_PROMISE_STATE_PENDING:           "pending",
	perdurev1.PromiseState_PROMISE_STATE_RESOLVED:          "resolved",
	perdurev1.PromiseState_PROMISE_STATE_REJECTED:          "rejected",
	perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED: "rejected_canceled",
	perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT: "rejected_timedout",
}

var taskStateNames = map[perdurev1.TaskState]string{
	perdurev1.TaskState_TASK_STATE_PENDING:   "pending",
	perdurev1.TaskState_TASK_STATE_ACQUIRED:  "acquired",
	perdurev1.TaskState_TASK_STATE_SUSPENDED: "suspended",
	perdurev1.TaskState_TASK_STATE_HALTED:    "halted",
	perdurev1.TaskState_TASK_STATE_FULFILLED: "fulfilled",
}

// stateNumber finds the state with a protocol's name; the zero value, which is no state, for "".
func stateNumber[S comparable](names map[S]string, name string) (state S) {
	for s, n := range names { //lint:sorted names are unique
		if n == name {
			state = s
		}
	}
	return state
}

// promiseRecord is a partition's promise as the protocol has it.
func (c ids) promiseRecord(p *perdurev1.Promise) Promise {
	out := Promise{
		ID: c.outward(p.GetId()), State: promiseStateNames[p.GetState()], Tags: maps.Clone(p.GetTags()),
		Param:     valueOf(p.GetParam(), p.GetParamForm(), p.GetParamHeaders()),
		TimeoutAt: p.GetTimeoutAtMs(), CreatedAt: p.GetCreatedAtMs(),
	}
	if out.Tags == nil {
		out.Tags = map[string]string{}
	}
	if p.GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING {
		at := p.GetSettledAtMs()
		out.SettledAt = &at
		if p.GetState() != perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT { // its value is empty
			out.Value = outcomeValue(p.GetValue())
		}
	}
	return out
}

func (c ids) promiseRecords(promises []*perdurev1.Promise) []Promise {
	out := make([]Promise, len(promises))
	for i, p := range promises {
		out[i] = c.promiseRecord(p)
	}
	return out
}

// taskRecord is a partition's task as the protocol has it.
func (c ids) taskRecord(t *perdurev1.ClientTask) Task {
	out := Task{ID: c.outward(t.GetId()), State: taskStateNames[t.GetState()], Version: t.GetVersion(), Resumes: len(t.GetResumes())}
	if t.GetState() == perdurev1.TaskState_TASK_STATE_ACQUIRED {
		ttl := t.GetTtlMs()
		out.PID, out.TTL = t.GetPid(), &ttl
	}
	return out
}

// scheduleRecord is a partition's schedule as the protocol has it.
func (c ids) scheduleRecord(s *perdurev1.Schedule) Schedule {
	p := s.GetPromiseParam()
	out := Schedule{
		ID: c.outward(s.GetId()), Cron: s.GetCron(), PromiseID: s.GetPromiseId(), PromiseTimeout: s.GetPromiseTimeoutMs(),
		PromiseParam: valueOf(p.GetData(), p.GetForm(), p.GetHeaders()), PromiseTags: maps.Clone(s.GetPromiseTags()),
		CreatedAt: s.GetCreatedAtMs(), NextRunAt: s.GetNextRunAtMs(),
	}
	if out.PromiseTags == nil {
		out.PromiseTags = map[string]string{}
	}
	if at := s.GetLastRunAtMs(); at != 0 {
		out.LastRunAt = &at
	}
	return out
}

// In the compatibility mode the stored id has one ':' more at the end of its origin if a '.' follows there: the client's
// wf.0.1 is stored as wf:.0.1, and its wf:.0 as wf::.0. So the whole lineage has one origin and lies in one partition, and
// two ids of clients are never one stored id.

// inward returns the stored id of a client's.
func (c ids) inward(s string) string {
	i := strings.IndexAny(s, ":.")
	if c.dotted && i >= 0 && strings.HasPrefix(strings.TrimLeft(s[i:], ":"), ".") {
		return s[:i] + ":" + s[i:]
	}
	return s
}

// outward is the inverse of inward.
func (c ids) outward(s string) string {
	i := strings.IndexAny(s, ":.")
	if c.dotted && i >= 0 && s[i] == ':' && strings.HasPrefix(strings.TrimLeft(s[i:], ":"), ".") {
		return s[:i] + s[i+1:]
	}
	return s
}
