package machine

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// entityModel is the high-level model of entities and critical sections: atomic and without messages, queues of batches
// or workers (durable functions semantics, section 4). It shares no code with the machine. Each method is a step, and
// returns an error if the model does not have it.
type entityModel struct {
	entities map[string]*modelEntity
	// asking and inside are the entities of each execution's section.
	asking, inside map[string][]string
	// results are the outcomes of calls that ran, by request.
	results map[string]*perdurev1.Outcome
}

type modelEntity struct {
	exists bool
	value  string
	// lock is the execution that holds it. orphan: that has ended, and its calls under way run first.
	lock   string
	orphan bool
	// queues has each sender's requests in their order. scheduled ones have none.
	queues    map[string][]modelRequest
	scheduled []modelRequest
}

type modelRequest struct {
	sender, request, op, arg string
	call, section            bool
	due                      int64
}

func newEntityModel() *entityModel {
	return &entityModel{entities: map[string]*modelEntity{}, asking: map[string][]string{}, inside: map[string][]string{}, results: map[string]*perdurev1.Outcome{}}
}

func (m *entityModel) entity(k string) *modelEntity {
	if m.entities[k] == nil {
		m.entities[k] = &modelEntity{queues: map[string][]modelRequest{}}
	}
	return m.entities[k]
}

// apply is what an operation does, for both sides: "append X", "get", "clear", "fail", "relay ENTITY", "remind MS".
func applyModel(exists bool, value, op, arg string) (existsAfter bool, after string, out *perdurev1.Outcome, sends []*perdurev1.EntitySignal) {
	show := fmt.Sprint(exists, value)
	result := &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(show)}}
	switch op {
	case "append":
		if value += arg; len(value) > 12 {
			value = strconv.Itoa(len(value)) + value[len(value)-9:]
		}
		return true, value, result, nil
	case "clear":
		return false, "", result, nil
	case "fail":
		return exists, value, &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: "no", Message: show}}}, nil
	case "relay":
		return exists, value, result, []*perdurev1.EntitySignal{{Id: arg, Operation: "append", Input: []byte("r")}, {Id: arg, Operation: "append", Input: []byte("s")}}
	case "remind":
		ms, _ := strconv.ParseInt(arg, 10, 64)
		return exists, value, result, []*perdurev1.EntitySignal{{Operation: "append", Input: []byte("!"), DelayMs: ms}}
	}
	return exists, value, result, nil
}

func (m *entityModel) send(k string, r modelRequest) {
	e := m.entity(k)
	if r.due != 0 {
		e.scheduled = append(e.scheduled, r)
		return
	}
	e.queues[r.sender] = append(e.queues[r.sender], r)
}

// run is one operation: the oldest of its sender, or a scheduled one that is due. A locked entity runs its holder's.
func (m *entityModel) run(k string, op *perdurev1.EntityOperation, now int64, fromLane bool) error {
	e := m.entity(k)
	is := func(r modelRequest) bool {
		return r.op == op.Name && r.arg == string(op.Input) && r.call == op.Call && (r.request == "" || r.request == op.Request)
	}
	var r modelRequest
	if fromLane {
		i := slices.IndexFunc(e.scheduled, func(r modelRequest) bool { return r.sender == op.Sender && is(r) && r.due <= now })
		if i < 0 || e.lock != "" {
			return fmt.Errorf("%s: scheduled %v of %s is not due, or %q holds the lock", k, op.Name, op.Sender, e.lock)
		}
		r = e.scheduled[i]
		e.scheduled = slices.Delete(e.scheduled, i, i+1)
	} else {
		q := e.queues[op.Sender]
		switch {
		case len(q) == 0 || !is(q[0]):
			return fmt.Errorf("%s: %s %q of %s is not its oldest request: %v", k, op.Name, op.Input, op.Sender, q)
		case e.lock != "" && e.lock != op.Sender:
			return fmt.Errorf("%s: %s of %s runs while %s holds the lock", k, op.Name, op.Sender, e.lock)
		case q[0].section && e.lock != op.Sender:
			return fmt.Errorf("%s: a call of a section of %s runs without the lock", k, op.Sender)
		}
		r, e.queues[op.Sender] = q[0], q[1:]
	}
	var out *perdurev1.Outcome
	var sends []*perdurev1.EntitySignal
	e.exists, e.value, out, sends = applyModel(e.exists, e.value, r.op, r.arg)
	if r.call {
		m.results[op.Request] = out
	}
	for _, s := range sends {
		next := modelRequest{sender: k, op: s.Operation, arg: string(s.Input)}
		to := s.Id
		if to == "" {
			to = k
		}
		if s.DelayMs > 0 {
			next.due = now + s.DelayMs
		}
		m.send(to, next)
	}
	if e.orphan && !e.sectionCalls(e.lock) {
		e.lock, e.orphan = "", false
	}
	return nil
}

func (e *modelEntity) sectionCalls(of string) bool {
	return slices.ContainsFunc(e.queues[of], func(r modelRequest) bool { return r.section })
}

// enter: all locks of a section are taken in one step.
func (m *entityModel) enter(x string) error {
	for _, k := range m.asking[x] {
		if e := m.entity(k); e.lock != "" {
			return fmt.Errorf("%s enters its section, and %s holds %s", x, e.lock, k)
		}
	}
	for _, k := range m.asking[x] {
		m.entity(k).lock = x
	}
	m.inside[x] = m.asking[x]
	delete(m.asking, x)
	return nil
}

// end: an execution leaves its section, or ends, in any phase.
func (m *entityModel) end(x string) {
	for _, k := range m.inside[x] {
		e := m.entity(k)
		if e.sectionCalls(x) {
			e.orphan = true
		} else {
			e.lock = ""
		}
	}
	delete(m.inside, x)
	delete(m.asking, x)
}

// sameOutcome reports whether a call's result is the model's.
func (m *entityModel) sameOutcome(request string, got *perdurev1.Outcome) bool {
	return m.results[request] != nil && proto.Equal(m.results[request], got)
}
