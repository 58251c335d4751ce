package durable

import perdurev1 "perdure/api/perdure/v1"

// stepEvents are the events of a step that succeeds at its first attempt, in one allocation.
type stepEvents struct {
	list      [3]*perdurev1.Event
	scheduled struct {
		event  perdurev1.Event
		kind   perdurev1.Event_InvokeScheduled
		invoke perdurev1.InvokeScheduled
	}
	started struct {
		event  perdurev1.Event
		kind   perdurev1.Event_InvokeStarted
		invoke perdurev1.InvokeStarted
	}
	completed struct {
		event   perdurev1.Event
		kind    perdurev1.Event_InvokeCompleted
		invoke  perdurev1.InvokeCompleted
		outcome perdurev1.Outcome
		value   perdurev1.Outcome_Value
	}
}

// schedule makes the event that records a new step, and returns a list of it with capacity for the two that follow.
func (s *stepRun) schedule(kind perdurev1.InvokeKind) []*perdurev1.Event {
	s.events = new(stepEvents)
	e := &s.events.scheduled
	e.invoke.PromiseId, e.invoke.Kind, e.invoke.FunctionName = s.id, kind, s.name
	e.invoke.Input, e.invoke.RetryPolicy = s.o.input, s.o.retry.String()
	e.kind.InvokeScheduled = &e.invoke
	e.event.Kind = &e.kind
	s.events.list[0] = &e.event
	return s.events.list[:1]
}

// start makes the event that begins the present attempt.
func (s *stepRun) start() *perdurev1.Event {
	if s.events == nil || s.attempt > 1 {
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: s.id, Attempt: s.attempt}}}
	}
	e := &s.events.started
	e.invoke.PromiseId, e.invoke.Attempt = s.id, s.attempt
	e.kind.InvokeStarted = &e.invoke
	e.event.Kind = &e.kind
	return &e.event
}

// completed makes the event that ends the step with a failure, or with a value if there is none.
func (s *stepRun) completed(attempt uint32, value []byte, failure *perdurev1.Failure) *perdurev1.Event {
	if s.events == nil {
		s.events = new(stepEvents)
	}
	e := &s.events.completed
	if failure != nil {
		e.outcome.Result = &perdurev1.Outcome_Failure{Failure: failure}
	} else {
		e.value.Value = value
		e.outcome.Result = &e.value
	}
	e.invoke.PromiseId, e.invoke.Result, e.invoke.Attempt = s.id, &e.outcome, attempt
	e.kind.InvokeCompleted = &e.invoke
	e.event.Kind = &e.kind
	return &e.event
}
