package machine

import (
	"slices"

	"perdure/id"
	"perdure/journal"
)

func (r *modelRun) await(e journal.ExecutionAwaiting) {
	r.phase, r.wait, r.holder = modelBlocked, e, 0
	if e.Wait == journal.AwaitSignal {
		r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: e.Kind()})
	}
}

func (r *modelRun) satisfied() bool {
	resolved := 0
	for _, p := range r.wait.On {
		if op, err := r.op(p); err == nil && op.resolved {
			resolved++
		}
	}
	switch r.wait.Wait {
	case journal.AwaitAll:
		return resolved == len(r.wait.On)
	case journal.AwaitJoinSet:
		set, err := r.op(id.PromiseID(r.wait.Set))
		return err == nil && slices.ContainsFunc(set.members, func(n uint32) bool { return r.ops[n].resolved && !r.ops[n].consumed })
	}
	return resolved > 0
}

func (m *executionModel) delivered(r *modelRun, e journal.SignalDelivered) error {
	text := shown(e.Payload)
	count := uint64(1)
	for _, o := range r.log {
		if d, ok := o.Event.(journal.SignalDelivered); ok && d.Name == e.Name {
			count++
		}
	}
	if e.DeliveryID != count {
		return refuse(r, "delivery %d of %s is its delivery %d", count, e.Name, e.DeliveryID)
	}
	switch {
	case len(r.redeliver) > 0:
		if d := r.redeliver[0]; d.Name != e.Name || shown(d.Payload) != text {
			return refuse(r, "it is delivered %s %q, its former incarnation has left %s %q", e.Name, text, d.Name, shown(d.Payload))
		}
		r.redeliver = r.redeliver[1:]
	case text == modelTimeout:
		if r.phase != modelBlocked || r.wait.Wait != journal.AwaitSignal || r.wait.Signal != e.Name || r.waitEnds == 0 || r.waitEnds > m.now {
			return refuse(r, "a wait for %s times out at %d that ends at %d", e.Name, m.now, r.waitEnds)
		}
	default:
		f, err := m.flying(r, e.Name, text)
		if err != nil {
			return err
		}
		// An operation that a former incarnation cancelled after the kept entries stays cancelled.
		f.answers = addOnce(slices.DeleteFunc(f.answers, func(a string) bool { return a != modelCancelled }), "")
		f.done, f.came = true, true
	}
	r.mail = append(r.mail, e)
	return nil
}

// flying finds a signal that comes to an execution. Those of one sender come in order: an earlier one came, or found no
// execution.
func (m *executionModel) flying(r *modelRun, name, payload string) (*modelFlight, error) {
	for i, f := range m.flights {
		if f.kind != journal.KindSignalDelivered || f.target != r.id || f.name != name || f.payload != payload {
			continue
		}
		if f.done {
			return nil, refuse(r, "signal %s %q comes twice, or was answered otherwise", name, payload)
		}
		for _, before := range m.flights[:i] {
			if before.kind == f.kind && before.from == f.from && before.target == f.target && !before.done {
				if len(before.answers) == 0 {
					return nil, refuse(r, "signal %q comes before %q of the same sender", payload, before.payload)
				}
				before.done = true
			}
		}
		return f, nil
	}
	return nil, refuse(r, "nobody sent signal %s %q", name, payload)
}

// receives reports whether the next event of the commit in progress is this receipt of the worker's.
func (m *executionModel) receives(e journal.SignalReceived) bool {
	if len(m.act.events) == 0 {
		return false
	}
	own, ok := m.act.events[0].(journal.SignalReceived)
	return ok && own.Promise == e.Promise && own.Name == e.Name && own.DeliveryID == e.DeliveryID
}

func (m *executionModel) received(r *modelRun, e journal.SignalReceived) error {
	i := slices.IndexFunc(r.mail, func(d journal.SignalDelivered) bool { return d.Name == e.Name })
	if i < 0 || r.mail[i].DeliveryID != e.DeliveryID || shown(r.mail[i].Payload) != shown(e.Payload) {
		return refuse(r, "it receives delivery %d of %s, it has %v", e.DeliveryID, e.Name, r.mail)
	}
	switch {
	case r.phase == modelBlocked && r.wait.Wait == journal.AwaitSignal && r.wait.Signal == e.Name:
		r.ops[len(r.ops)-1].resolved = true
		r.ops[len(r.ops)-1].result = shown(e.Payload)
	case r.phase == modelRunning && m.act.commit == r && m.receives(e):
		m.act.events = m.act.events[1:]
		r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: journal.KindExecutionAwaiting, resolved: true, result: shown(e.Payload)})
	case r.phase == modelRunning && m.act.commit == r && len(m.act.events) == 1:
		wait, ok := m.act.events[0].(journal.ExecutionAwaiting)
		if !ok || wait.Signal != e.Name {
			return refuse(r, "it receives %s, and does not wait for it", e.Name)
		}
		m.act.events = nil
		r.ops = append(r.ops, &modelOp{modelWorld: &modelWorld{}, call: journal.KindExecutionAwaiting, resolved: true, result: shown(e.Payload)})
	default:
		return refuse(r, "it receives %s, and does not wait", e.Name)
	}
	r.mail = slices.Delete(r.mail, i, i+1)
	return nil
}
