package recovery

import (
	"slices"
	"strings"
)

// CreateRequest describes a promise to create. See [Promise] for the meaning of the fields.
type CreateRequest struct {
	ID string
	// Incarnation is that of a newly created promise; at least 1. An existing promise keeps its own.
	Incarnation     uint64
	Param           []byte
	Tags            []Tag // in any order
	Target          string
	Timer, External bool
	TimeoutAt       int64
	DelayUntil      int64
	// CreatedAt is an earlier time than now that counts as the creation; 0, or a later time: now.
	CreatedAt int64
}

// Created is the answer to [Create] and [CreateAcquired]: the stored objects at the time of the request,
// whether this request created them or they existed before.
type Created struct {
	Promise Promise
	// Task is the task of the promise, if HasTask.
	Task    Task
	HasTask bool
	// New reports that this request created the promise.
	New bool
	// Acquired reports that this request acquired the task ([CreateAcquired] only).
	Acquired bool
}

// Create makes a promise, and its task if it has a target.
//
// If the id exists, in any state and incarnation, Create returns the stored promise and changes nothing,
// whatever else the request says: it is idempotent by id. If the deadline is not after now, the promise is
// born settled by its deadline (created and settled at TimeoutAt) and the task fulfilled. Else the task is
// pending at version 0 and an Execute notifies its target; with a DelayUntil after now, the retry timer sends
// that first Execute at DelayUntil.
//
// Errors: [Invalid].
func Create(s Store, now int64, req CreateRequest, retry int64) (Created, Effects, error) {
	tags, err := req.check("create")
	if err != nil {
		return Created{}, Effects{}, err
	}
	if c, ok := existing(s, now, req.ID); ok {
		return c, Effects{}, nil
	}
	c := req.build(now, tags)
	var fx Effects
	if c.HasTask && c.Task.State == TaskPending {
		if req.DelayUntil > now {
			c.Task.RetryAt = req.DelayUntil
		} else {
			c.Task.RetryAt = after(now, retry)
			fx = executes(c.Task)
		}
	}
	c.put(s)
	return c, fx, nil
}

// existing returns the objects of id as of now.
func existing(s Store, now int64, id string) (Created, bool) {
	p, ok := s.Promise(id)
	if !ok {
		return Created{}, false
	}
	c := Created{Promise: p.At(now)}
	if t, ok := s.Task(id); ok {
		c.Task, c.HasTask = t.At(now, c.Promise), true
	}
	return c, true
}

// build returns what the request makes at now: a promise, pending or born settled, and its task,
// pending without a timer yet, or fulfilled.
func (req CreateRequest) build(now int64, tags []Tag) Created {
	created := now
	if req.CreatedAt > 0 {
		created = req.CreatedAt
	}
	p := Promise{
		ID:          req.ID,
		Incarnation: req.Incarnation,
		State:       PromisePending,
		Param:       req.Param,
		Tags:        tags,
		Target:      req.Target,
		Timer:       req.Timer,
		External:    req.External,
		TimeoutAt:   req.TimeoutAt,
		CreatedAt:   min(created, now, req.TimeoutAt),
		DelayUntil:  req.DelayUntil,
	}
	c := Created{Promise: p.At(now), New: true}
	if p.Target != "" {
		t := Task{ID: p.ID, Incarnation: p.Incarnation, State: TaskPending, Target: p.Target}
		c.Task, c.HasTask = t.At(now, c.Promise), true
	}
	return c
}

func (c Created) put(s Store) {
	s.PutPromise(c.Promise)
	if c.HasTask {
		s.PutTask(c.Task)
	}
}

// check refuses a request that could not succeed on any state, and returns its tags sorted.
func (req CreateRequest) check(op string) ([]Tag, error) {
	switch {
	case req.ID == "":
		return nil, invalid(op, req.ID, RuleID, "")
	case req.Incarnation == 0:
		return nil, invalid(op, req.ID, RuleBorn, "")
	case req.TimeoutAt < 0:
		return nil, invalid(op, req.ID, RuleTimes, "the deadline is negative")
	case req.CreatedAt < 0:
		return nil, invalid(op, req.ID, RuleTimes, "the creation is negative")
	case req.DelayUntil < 0:
		return nil, invalid(op, req.ID, RuleTimes, "the delay is negative")
	case req.DelayUntil > 0 && req.Target == "":
		return nil, invalid(op, req.ID, RuleDelay, "there is a delay and no target")
	case req.DelayUntil > 0 && req.DelayUntil >= req.TimeoutAt:
		return nil, invalid(op, req.ID, RuleDelay, "the delay ends at or after the deadline")
	}
	byKey := func(a, b Tag) int { return strings.Compare(a.Key, b.Key) }
	tags := req.Tags
	if !slices.IsSortedFunc(tags, byKey) {
		tags = slices.SortedFunc(slices.Values(tags), byKey)
	}
	for i := 1; i < len(tags); i++ {
		if tags[i-1].Key == tags[i].Key {
			return nil, invalid(op, req.ID, RuleTags, "tag "+tags[i].Key+" is given twice")
		}
	}
	return tags, nil
}
