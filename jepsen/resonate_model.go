package jepsen

import (
	"errors"
	"hash/maphash"
	"net/http"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"

	"perdure/recovery"
)

// The sequential model is package recovery on a store in memory: the rules alone, without the machine that composes
// them, the log, and the edge. Its time stands still, far from every deadline. Three things depend on time, and are
// left to the answers:
//
//   - When a promise was created or settled: the first answer that shows it decides it for all others.
//   - A stamp never runs backwards: what a request creates or settles has no earlier time than anything before it.
//   - A short lease may end, not sooner than its length after the call that began or extended it. It may be extended
//     without an answer that says so, and whether it ended shows only in a later answer; the model tries both.
const (
	// modelNow is the model's time, and that of an object whose time no answer has shown yet.
	modelNow = 1
	// modelRetry is the interval of retry timers, which no answer shows.
	modelRetry = 1
	// modelEpoch is the time in milliseconds from which leases are counted, after modelNow and every ttl.
	modelEpoch = 1 << 40
	// shortLease is the length in milliseconds from which on a lease outlasts every run.
	shortLease = 60_000
)

// resonateState is a state of the model: that of the promises of one origin. It is never changed.
type resonateState struct {
	store *recovery.MemStore
	// latest is the latest time that an answer has shown; it follows from the store.
	latest int64
	// key is equal for states that no request tells apart, hash is its hash.
	key  string
	hash uint64
}

var resonateSeed = maphash.MakeSeed()

// newResonateState takes over a store.
func newResonateState(store *recovery.MemStore) *resonateState {
	s := &resonateState{store: store}
	key := make([]byte, 0, 512)
	// A text begins with its length and a number ends with a space, so two states have one key only if they are equal.
	text := func(fields ...string) {
		for _, f := range fields {
			key = append(strconv.AppendInt(key, int64(len(f)), 10), ':')
			key = append(key, f...)
		}
	}
	number := func(numbers ...int64) {
		for _, n := range numbers {
			key = append(strconv.AppendInt(key, n, 10), ' ')
		}
	}
	for p := range store.Promises() {
		text(p.ID, string(p.Param), string(p.Value), p.Tags[0].Value)
		number(int64(p.State), p.TimeoutAt, p.CreatedAt, p.SettledAt)
		s.latest = max(s.latest, p.CreatedAt, p.SettledAt)
	}
	for t := range store.Tasks() {
		text(t.ID, t.PID)
		text(t.Resumes...)
		number(int64(t.State), int64(t.Version), t.TTL, t.LeaseAt, int64(len(t.Resumes)))
	}
	for awaited, awaiter := range store.AllCallbacks() {
		text(awaited, awaiter)
	}
	s.key = string(key)
	s.hash = maphash.String(resonateSeed, s.key)
	return s
}

// resonateModel is the model for the checker. A lease may end at any moment within slack of what its length allows.
func resonateModel(slack time.Duration) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{newResonateState(recovery.NewMemStore())} },
		Step: func(state, input, _ any) []any {
			var out []any
			op := input.(*ResonateOp)
			for _, s := range state.(*resonateState).leases(op, slack) {
				if next, ok := s.step(op); ok {
					out = append(out, next)
				}
			}
			return out
		},
		Equal: func(a, b any) bool {
			x, y := a.(*resonateState), b.(*resonateState)
			return x == y || x.hash == y.hash && x.key == y.key
		},
		Hash: func(state any) uint64 { return state.(*resonateState).hash },
	}
	return model.ToModel()
}

// leases are the states that the request may find: with each short lease of its tasks as it is, or ended.
func (s *resonateState) leases(op *ResonateOp, slack time.Duration) []*resonateState {
	states := []*resonateState{s}
	for _, id := range op.tasks() {
		t, ok := s.store.Task(id)
		if !ok || t.State != recovery.TaskAcquired || t.TTL >= shortLease {
			continue
		}
		if !op.Open && leaseTime(op.Answered+slack) < t.LeaseAt {
			continue
		}
		for _, held := range states {
			store := held.store.Clone()
			recovery.ExpireLease(store, t.LeaseAt, recovery.Ref{ID: id}, modelRetry)
			states = append(states, newResonateState(store))
		}
	}
	return states
}

// tasks are the tasks whose state decides a request's answer or its effect.
func (r ResonateRequest) tasks() []string {
	switch r.Kind {
	case promiseGet, promiseCreate, promiseSettle, registerCallback:
		return nil
	case taskHeartbeat:
		var out []string
		for _, ref := range r.Tasks {
			out = append(out, ref.ID)
		}
		return out
	}
	return []string{r.ID}
}

// leaseTime is a time of a run in milliseconds, as leases are counted.
func leaseTime(at time.Duration) int64 { return modelEpoch + at.Milliseconds() }

// step is the state after a request, and whether the request's answer fits.
func (s *resonateState) step(op *ResonateOp) (*resonateState, bool) {
	rules := resonateRules{s.store.Clone()}
	want := rules.perform(op.ResonateRequest)
	if !op.Open && !s.fits(rules, want, op.Answer) {
		return nil, false
	}
	if op.PID != "" { // it may have begun or extended leases
		for t := range rules.Tasks() {
			if t.State == recovery.TaskAcquired && t.TTL < shortLease && t.LeaseAt == modelNow+t.TTL {
				t.LeaseAt = leaseTime(op.Called) + t.TTL
				rules.PutTask(t)
			}
		}
	}
	next := newResonateState(rules.MemStore)
	if next.key == s.key {
		return s, true
	}
	return next, true
}

// fits compares the model's answer to a request at s with the server's. It takes over times that no answer has shown
// before, into the state after the request.
func (s *resonateState) fits(after resonateRules, want, got ResonateAnswer) bool {
	p := &want.Promise
	if p.ID == "" || p.ID != got.Promise.ID {
		return want == got
	}
	before, existed := s.store.Promise(p.ID)
	stored, _ := after.Promise(p.ID)
	if p.CreatedAt == modelNow {
		p.CreatedAt = got.Promise.CreatedAt
		if !existed && p.CreatedAt < s.latest {
			return false
		}
	}
	if p.SettledAt == modelNow {
		p.SettledAt = got.Promise.SettledAt
		if p.SettledAt < p.CreatedAt || before.State == recovery.PromisePending && p.SettledAt < s.latest {
			return false
		}
	}
	if stored.CreatedAt != p.CreatedAt || stored.SettledAt != p.SettledAt {
		stored.CreatedAt, stored.SettledAt = p.CreatedAt, p.SettledAt
		after.PutPromise(stored)
	}
	return want == got
}

// resonateRules are the protocol's rules on a store.
type resonateRules struct{ *recovery.MemStore }

// perform performs a request, and returns the protocol's answer.
func (s resonateRules) perform(r ResonateRequest) ResonateAnswer {
	own, ref := recovery.Ref{ID: r.ID}, recovery.TaskRef{ID: r.ID, Version: r.Version}
	switch r.Kind {
	case promiseGet:
		return promiseAnswer(recovery.GetPromise(s, modelNow, own))
	case promiseCreate:
		return s.create(*r.Create)
	case promiseSettle:
		return s.settle(*r.Settle)
	case registerCallback:
		got, err := recovery.RegisterCallback(s, modelNow, own, recovery.Ref{ID: r.Awaiter}, false)
		return promiseAnswer(got.Promise, err)
	case taskGet:
		t, _, err := recovery.GetTask(s, modelNow, own)
		return recordsAnswer(t, recovery.Promise{}, err)
	case taskCreate:
		c, err := recovery.CreateAcquired(s, modelNow, r.Create.rule(), r.PID, r.TTL)
		return recordsAnswer(c.Task, c.Promise, err)
	case taskAcquire:
		h, err := recovery.Acquire(s, modelNow, ref, r.PID, r.TTL)
		return recordsAnswer(h.Task, h.Promise, err)
	case taskRelease:
		_, _, err := recovery.Return(s, modelNow, ref, modelRetry)
		return statusAnswer(err)
	case taskSuspend:
		return s.suspend(ref, r.Awaited)
	case taskFulfill:
		state, _ := recovery.ParsePromiseState(r.Settle.State)
		st, err := recovery.Fulfill(s, modelNow, ref, state, []byte(canonical(r.Settle.Value)))
		if err == nil {
			recovery.Propagate(s, modelNow, st, modelRetry)
		}
		return promiseAnswer(st.Promise, err)
	case taskFence:
		return s.fence(ref, r)
	case taskHeartbeat:
		for _, held := range r.Tasks {
			recovery.Heartbeat(s, modelNow, r.PID, []recovery.TaskRef{{ID: held.ID, Version: held.Version}})
		}
		return statusAnswer(nil)
	case taskHalt:
		_, err := recovery.Halt(s, modelNow, own)
		return statusAnswer(err)
	case taskContinue:
		_, _, err := recovery.Continue(s, modelNow, own, modelRetry)
		return statusAnswer(err)
	}
	return ResonateAnswer{} // which no server gives
}

// rule is what the rules create. The tags travel as one canonical text: the rules do not look into them.
func (c ResonateCreate) rule() recovery.CreateRequest {
	return recovery.CreateRequest{ID: c.ID, Incarnation: 1, TimeoutAt: c.TimeoutAt, Param: []byte(canonical(c.Param)),
		Tags: []recovery.Tag{{Value: canonical(c.Tags)}}, Target: c.Tags[resonateTarget],
		Timer: c.Tags[resonateTimer] == "true", External: c.Tags[resonateExternal] == "true"}
}

func (s resonateRules) create(c ResonateCreate) ResonateAnswer {
	made, _, err := recovery.Create(s, modelNow, c.rule(), modelRetry)
	return promiseAnswer(made.Promise, err)
}

func (s resonateRules) settle(to ResonateSettle) ResonateAnswer {
	state, _ := recovery.ParsePromiseState(to.State)
	st, _, err := recovery.Chain(s, modelNow, recovery.Ref{ID: to.ID}, state, []byte(canonical(to.Value)), modelRetry)
	return promiseAnswer(st.Promise, err)
}

func (s resonateRules) suspend(ref recovery.TaskRef, awaited []string) ResonateAnswer {
	var refs []recovery.Ref
	for _, id := range awaited {
		refs = append(refs, recovery.Ref{ID: id})
	}
	got, err := recovery.Suspend(s, modelNow, ref, refs, false)
	if err == nil && len(got.Ready) > 0 {
		return ResonateAnswer{Status: http.StatusMultipleChoices}
	}
	return statusAnswer(err)
}

func (s resonateRules) fence(ref recovery.TaskRef, r ResonateRequest) ResonateAnswer {
	if _, err := recovery.Fence(s, modelNow, ref); err != nil {
		return statusAnswer(err)
	}
	var inner ResonateAnswer
	if r.Create != nil {
		inner = s.create(*r.Create)
	} else {
		inner = s.settle(*r.Settle)
	}
	return ResonateAnswer{Status: http.StatusOK, Action: inner.Status, Promise: inner.Promise}
}

// statusAnswer is the answer without records.
func statusAnswer(err error) ResonateAnswer {
	if err == nil {
		return ResonateAnswer{Status: http.StatusOK}
	}
	status := http.StatusBadRequest
	if broken, ok := errors.AsType[*recovery.Error](err); ok {
		switch broken.Code {
		case recovery.NotFound:
			status = http.StatusNotFound
		case recovery.Conflict:
			status = http.StatusConflict
		case recovery.Precondition:
			status = http.StatusUnprocessableEntity
		}
	}
	return ResonateAnswer{Status: status}
}

func promiseAnswer(p recovery.Promise, err error) ResonateAnswer {
	return recordsAnswer(recovery.Task{}, p, err)
}

// recordsAnswer is the answer with those records that have an id.
func recordsAnswer(t recovery.Task, p recovery.Promise, err error) ResonateAnswer {
	a := statusAnswer(err)
	if err != nil {
		return a
	}
	if p.ID != "" {
		a.Promise = ResonatePromise{ID: p.ID, State: p.State.String(), Param: string(p.Param), Value: noValue, Tags: p.Tags[0].Value,
			TimeoutAt: p.TimeoutAt, CreatedAt: p.CreatedAt, SettledAt: p.SettledAt}
		if p.State.Settled() {
			a.Promise.Value = string(p.Value)
		}
	}
	if t.ID != "" {
		a.Task = ResonateTask{ID: t.ID, State: t.State.String(), Version: t.Version, Resumes: len(t.Resumes), PID: t.PID, TTL: t.TTL}
	}
	return a
}
