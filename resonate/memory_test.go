package resonate

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"perdure/recovery"
)

// memory is a Store on the rules of package recovery: what the edge does is tested without a partition.
type memory struct {
	mu  sync.Mutex
	s   *recovery.MemStore
	now int64
	// values keeps what the rules hold as bytes.
	params, values map[string]Value
	heartbeats     [][]TaskRef
	schedules      map[string]Schedule
	writes         int
}

func newMemory() *memory {
	return &memory{s: recovery.NewMemStore(), now: 1000, params: map[string]Value{}, values: map[string]Value{}, schedules: map[string]Schedule{}}
}

const memoryRetry = 30_000

func statusOfRule(err error) error {
	e, ok := errors.AsType[*recovery.Error](err)
	if !ok {
		return err
	}
	status := map[recovery.Code]int{recovery.NotFound: http.StatusNotFound, recovery.Conflict: http.StatusConflict,
		recovery.Invalid: http.StatusBadRequest, recovery.Precondition: http.StatusUnprocessableEntity}[e.Code]
	return &Refusal{Status: status, Message: e.Error()}
}

func (m *memory) promise(p recovery.Promise) Promise {
	out := Promise{ID: p.ID, State: p.State.String(), Tags: map[string]string{}, TimeoutAt: p.TimeoutAt, CreatedAt: p.CreatedAt, Param: m.params[p.ID]}
	for _, tag := range p.Tags {
		out.Tags[tag.Key] = tag.Value
	}
	if p.State.Settled() {
		at := p.SettledAt
		out.SettledAt, out.Value = &at, m.values[p.ID]
	}
	return out
}

func (m *memory) task(t recovery.Task) Task {
	out := Task{ID: t.ID, State: t.State.String(), Version: t.Version, Resumes: len(t.Resumes)}
	if t.State == recovery.TaskAcquired {
		ttl := t.TTL
		out.PID, out.TTL = t.PID, &ttl
	}
	return out
}

func request(req NewPromise) recovery.CreateRequest {
	out := recovery.CreateRequest{ID: req.ID, Incarnation: 1, Target: req.Target, Timer: req.Timer, External: req.External, TimeoutAt: req.TimeoutAt, DelayUntil: req.DelayUntil}
	for _, key := range slices.Sorted(maps.Keys(req.Tags)) {
		out.Tags = append(out.Tags, recovery.Tag{Key: key, Value: req.Tags[key]})
	}
	return out
}

func (m *memory) Promise(_ context.Context, id string) (Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := recovery.GetPromise(m.s, m.now, recovery.Ref{ID: id})
	return m.promise(p), statusOfRule(err)
}

func (m *memory) CreatePromise(_ context.Context, req NewPromise) (Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.create(req)
}

func (m *memory) create(req NewPromise) (Promise, error) {
	m.writes++
	c, _, err := recovery.Create(m.s, m.now, request(req), memoryRetry)
	if c.New {
		m.params[req.ID] = req.Param
	}
	return m.promise(c.Promise), statusOfRule(err)
}

func (m *memory) settle(req Settlement) (Promise, error) {
	m.writes++
	state, _ := recovery.ParsePromiseState(req.State)
	before, _ := recovery.GetPromise(m.s, m.now, recovery.Ref{ID: req.ID})
	st, _, err := recovery.Chain(m.s, m.now, recovery.Ref{ID: req.ID}, state, nil, memoryRetry)
	if err == nil && before.State == recovery.PromisePending {
		m.values[req.ID] = req.Value
	}
	return m.promise(st.Promise), statusOfRule(err)
}

func (m *memory) SettlePromise(_ context.Context, req Settlement) (Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.settle(req)
}

func (m *memory) RegisterCallback(_ context.Context, awaited, awaiter string) (Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	r, err := recovery.RegisterCallback(m.s, m.now, recovery.Ref{ID: awaited}, recovery.Ref{ID: awaiter}, false)
	return m.promise(r.Promise), statusOfRule(err)
}

func (m *memory) RegisterListener(_ context.Context, awaited, address string) (Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	r, err := recovery.RegisterListener(m.s, m.now, recovery.Ref{ID: awaited}, address, false)
	return m.promise(r.Promise), statusOfRule(err)
}

func (m *memory) SearchPromises(_ context.Context, req Search) ([]Promise, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Promise
	for p := range m.s.Promises() {
		record := m.promise(p.At(m.now))
		fits := record.ID > req.After && (req.State == "" || record.State == req.State)
		for key, value := range req.Tags {
			fits = fits && record.Tags[key] == value
		}
		if fits {
			out = append(out, record)
		}
	}
	slices.SortFunc(out, func(a, b Promise) int { return strings.Compare(a.ID, b.ID) })
	if len(out) > req.Limit {
		return out[:req.Limit], out[req.Limit-1].ID, nil
	}
	return out, "", nil
}

func (m *memory) Task(_ context.Context, id string) (Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, _, err := recovery.GetTask(m.s, m.now, recovery.Ref{ID: id})
	return m.task(t), statusOfRule(err)
}

func (m *memory) CreateTask(_ context.Context, req NewPromise, l Lease) (Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	c, err := recovery.CreateAcquired(m.s, m.now, request(req), l.PID, l.TTL)
	if c.New {
		m.params[req.ID] = req.Param
	}
	return Held{Task: m.task(c.Task), Promise: m.promise(c.Promise)}, statusOfRule(err)
}

func ruleRef(ref TaskRef) recovery.TaskRef {
	return recovery.TaskRef{ID: ref.ID, Version: ref.Version}
}

func (m *memory) AcquireTask(_ context.Context, ref TaskRef, l Lease) (Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	h, err := recovery.Acquire(m.s, m.now, ruleRef(ref), l.PID, l.TTL)
	return Held{Task: m.task(h.Task), Promise: m.promise(h.Promise)}, statusOfRule(err)
}

func (m *memory) ReleaseTask(_ context.Context, ref TaskRef) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	_, _, err := recovery.Release(m.s, m.now, ruleRef(ref), 0, memoryRetry)
	return statusOfRule(err)
}

func (m *memory) SuspendTask(_ context.Context, ref TaskRef, awaited []string) (Suspension, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	var refs []recovery.Ref
	for _, id := range awaited {
		refs = append(refs, recovery.Ref{ID: id})
	}
	s, err := recovery.Suspend(m.s, m.now, ruleRef(ref), refs, false)
	return Suspension{Waiting: len(s.Ready) == 0}, statusOfRule(err)
}

func (m *memory) FulfillTask(_ context.Context, ref TaskRef, req Settlement) (Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := recovery.Fence(m.s, m.now, ruleRef(ref)); err != nil {
		return Promise{}, statusOfRule(err)
	}
	return m.settle(req)
}

func (m *memory) FenceCreate(_ context.Context, ref TaskRef, req NewPromise) (Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := recovery.Fence(m.s, m.now, ruleRef(ref)); err != nil {
		return Promise{}, statusOfRule(err)
	}
	return m.create(req)
}

func (m *memory) FenceSettle(_ context.Context, ref TaskRef, req Settlement) (*Promise, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := recovery.Fence(m.s, m.now, ruleRef(ref)); err != nil {
		return nil, statusOfRule(err)
	}
	p, err := m.settle(req)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Status == http.StatusNotFound {
		return nil, nil
	}
	return &p, err
}

func (m *memory) Heartbeat(_ context.Context, pid string, tasks []TaskRef) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	var refs []recovery.TaskRef
	for _, ref := range tasks {
		refs = append(refs, ruleRef(ref))
	}
	recovery.Heartbeat(m.s, m.now, pid, refs)
	m.heartbeats = append(m.heartbeats, tasks)
	return nil
}

func (m *memory) HaltTask(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	_, err := recovery.Halt(m.s, m.now, recovery.Ref{ID: id})
	return statusOfRule(err)
}

func (m *memory) ContinueTask(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	_, _, err := recovery.Continue(m.s, m.now, recovery.Ref{ID: id}, memoryRetry)
	return statusOfRule(err)
}

func (m *memory) SearchTasks(_ context.Context, req Search) ([]Task, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Task
	for t := range m.s.Tasks() {
		record := m.task(t)
		if record.ID > req.After && (req.State == "" || record.State == req.State) {
			out = append(out, record)
		}
	}
	slices.SortFunc(out, func(a, b Task) int { return strings.Compare(a.ID, b.ID) })
	if len(out) > req.Limit {
		return out[:req.Limit], out[req.Limit-1].ID, nil
	}
	return out, "", nil
}

func (m *memory) CreateSchedule(_ context.Context, req NewSchedule, next func(int64) (int64, bool)) (Schedule, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.schedules[req.ID]; ok {
		return s, nil
	}
	m.writes++
	at, _ := next(m.now)
	m.schedules[req.ID] = Schedule{ID: req.ID, Cron: req.Cron, PromiseID: req.PromiseID, PromiseTimeout: req.PromiseTimeout,
		PromiseParam: req.PromiseParam, PromiseTags: req.PromiseTags, CreatedAt: m.now, NextRunAt: at}
	return m.schedules[req.ID], nil
}

func (m *memory) Schedule(_ context.Context, id string) (Schedule, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.schedules[id]
	if !ok {
		return s, refuse(http.StatusNotFound, "no schedule %q", id)
	}
	return s, nil
}

func (m *memory) DeleteSchedule(ctx context.Context, id string) error {
	if _, err := m.Schedule(ctx, id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	delete(m.schedules, id)
	return nil
}

func (m *memory) SearchSchedules(_ context.Context, req Search) ([]Schedule, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Schedule
	for _, id := range slices.Sorted(maps.Keys(m.schedules)) {
		if id > req.After && len(out) < req.Limit {
			out = append(out, m.schedules[id])
		}
	}
	return out, "", nil
}
