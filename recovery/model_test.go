package recovery

import (
	"maps"
	"slices"
	"strings"
)

// The model is a second implementation of the protocol, for comparison, without code of the rules: records in
// flat maps, states by name, and one picture of how everything stands at the time of a request (the view)
// from which all guards and answers are read. It knows the settlement chain as one act.

type mPromise struct {
	inc                                uint64
	state, param, value, target        string
	timer, external                    bool
	timeout, created, settled, delayed int64
}

type mTask struct {
	inc    uint64
	state  string
	ver    uint64
	holder string
	ttl    int64
	due    int64 // of the one timer
	inbox  string
	target string
}

type model struct {
	now       int64
	promises  map[string]mPromise
	tasks     map[string]mTask
	waits     map[[2]string]bool // awaited, awaiter
	listeners map[[2]string]bool // promise, address
	out       []string
}

// op is one random operation, for both sides.
type op struct {
	kind                string
	now                 int64
	ref                 TaskRef
	born                uint64
	pid, target, value  string
	timer, external     bool
	timeout, delay, ttl int64
	to                  PromiseState
	others              []Ref
	refs                []TaskRef
	address             string
	anyAwaited          bool
	asleep              uint // bit i: do not resume awaiter i, if that may be
}

// answer is what an operation returned, as text: first "ok" or the code of a refusal.
type answer struct {
	lines []string
	sent  []string
}

const modelRetry = 7

func newModel() *model {
	return &model{promises: map[string]mPromise{}, tasks: map[string]mTask{},
		waits: map[[2]string]bool{}, listeners: map[[2]string]bool{}}
}

func (m *model) view() *model {
	v := &model{now: m.now, promises: maps.Clone(m.promises), tasks: maps.Clone(m.tasks)}
	for id, p := range v.promises {
		t, has := v.tasks[id]
		switch {
		case p.state == "pending" && p.timeout <= m.now:
			p.state, p.settled = "rejected_timedout", p.timeout
			if p.timer {
				p.state = "resolved"
			}
			v.promises[id] = p
			if has {
				v.tasks[id] = mTask{inc: t.inc, state: "fulfilled", ver: t.ver, target: t.target}
			}
		case has && t.state == "acquired" && t.due <= m.now:
			t.state, t.holder, t.ttl = "pending", "", 0
			v.tasks[id] = t
		}
	}
	return v
}

func (m *model) showP(id string) string {
	p := m.promises[id]
	state, _ := ParsePromiseState(p.state)
	return showPromise(Promise{ID: id, Incarnation: p.inc, State: state, Param: []byte(p.param), Value: []byte(p.value),
		Target: p.target, Timer: p.timer, External: p.external, TimeoutAt: p.timeout, CreatedAt: p.created,
		SettledAt: p.settled, DelayUntil: p.delayed})
}

func (m *model) task(id string) Task {
	t := m.tasks[id]
	state, _ := ParseTaskState(t.state)
	out := Task{ID: id, Incarnation: t.inc, State: state, Version: t.ver, PID: t.holder, TTL: t.ttl, Target: t.target}
	switch t.state {
	case "acquired":
		out.LeaseAt = t.due
	case "pending":
		out.RetryAt = t.due
	}
	if t.inbox != "" {
		out.Resumes = strings.Fields(t.inbox)
	}
	return out
}

func (m *model) showT(id string) string { return showTask(m.task(id)) }

func (m *model) execute(id string) {
	t := m.tasks[id]
	m.out = append(m.out, showExecute(Execute{id, t.inc, t.ver, t.target}))
}

// toPending makes a task pending, with its timer at due.
func (m *model) toPending(id string, due int64) {
	t := m.tasks[id]
	m.tasks[id] = mTask{inc: t.inc, state: "pending", ver: t.ver, due: due, inbox: t.inbox, target: t.target}
}

func (m *model) toAcquired(id, pid string, ttl int64) {
	t := m.tasks[id]
	m.tasks[id] = mTask{inc: t.inc, state: "acquired", ver: t.ver + 1, holder: pid, ttl: ttl, due: m.now + ttl, target: t.target}
}

func (m *model) live(id string) bool {
	p, ok := m.promises[id]
	return ok && p.state == "pending" && p.timeout > m.now
}

func (m *model) wake(id, by string) {
	t, ok := m.tasks[id]
	if !ok || !m.live(id) {
		return
	}
	if t.state == "suspended" {
		m.toPending(id, m.now+modelRetry)
		t = m.tasks[id]
		t.inbox = by
		m.tasks[id] = t
		m.execute(id)
		return
	}
	inbox := append(strings.Fields(t.inbox), by)
	slices.Sort(inbox)
	t.inbox = strings.Join(slices.Compact(inbox), " ")
	m.tasks[id] = t
}

// settleNow does the first half; the returned function the second.
func (m *model) settleNow(id, state, value string, at int64, asleep uint) (awaiters []string, second func()) {
	p := m.promises[id]
	p.state, p.value, p.settled = state, value, at
	m.promises[id] = p
	if t, ok := m.tasks[id]; ok {
		m.tasks[id] = mTask{inc: t.inc, state: "fulfilled", ver: t.ver, target: t.target}
	}
	var addresses []string
	for pair := range m.waits {
		if pair[1] == id {
			delete(m.waits, pair)
		} else if pair[0] == id {
			delete(m.waits, pair)
			awaiters = append(awaiters, pair[1])
		}
	}
	for pair := range m.listeners {
		if pair[0] == id {
			delete(m.listeners, pair)
			addresses = append(addresses, pair[1])
		}
	}
	slices.Sort(awaiters)
	return awaiters, func() {
		for i, awaiter := range awaiters {
			if asleep>>i&1 == 1 && (m.tasks[awaiter].state != "suspended" || m.awaitsMore(awaiter)) {
				continue
			}
			m.wake(awaiter, id)
		}
		for _, address := range addresses {
			m.out = append(m.out, "unblock "+address+": "+m.showP(id))
		}
	}
}

func (m *model) awaitsMore(id string) bool {
	for pair := range m.waits {
		if pair[1] == id {
			return true
		}
	}
	return false
}

func (m *model) armed(id string) bool {
	p := m.promises[id]
	if p.state != "pending" {
		return false
	}
	if p.target != "" || p.timer || p.external {
		return true
	}
	for pair := range m.waits {
		if pair[0] == id {
			return true
		}
	}
	for pair := range m.listeners {
		if pair[0] == id {
			return true
		}
	}
	return false
}

// do carries one operation out.
func (m *model) do(o op) answer {
	m.now, m.out = o.now, nil
	lines := m.step(o)
	slices.Sort(m.out)
	return answer{lines: lines, sent: m.out}
}

func (m *model) step(o op) []string {
	v, id := m.view(), o.ref.ID
	p, hasP := v.promises[id]
	t, hasT := v.tasks[id]
	foreign := func(r Ref) bool { return r.Incarnation != 0 && r.Incarnation != v.promises[r.ID].inc }
	mine := Ref{id, o.ref.Incarnation}
	// held answers the guard of a worker's request, for a task that must be in the given state.
	held := func(state string) string {
		switch {
		case !hasT:
			return "not found"
		case foreign(mine) || t.state != state || t.ver != o.ref.Version:
			return "conflict"
		}
		return ""
	}
	open := func(id string) bool {
		p := v.promises[id]
		return o.anyAwaited || p.target != "" || p.timer || p.external
	}
	settled := func(by func() ([]string, func())) []string {
		awaiters, second := by()
		shown := m.showP(id)
		second()
		return []string{"ok", "settled " + strings.Join(awaiters, ","), shown}
	}

	switch o.kind {
	case "create", "create acquired":
		claim := o.kind == "create acquired"
		switch {
		case o.delay > 0 && (o.target == "" || o.delay >= o.timeout):
			return []string{"invalid"}
		case claim && (o.target == "" || o.delay > 0):
			return []string{"invalid"}
		case hasP && claim && !hasT:
			return []string{"precondition"}
		case hasP && claim && t.state != "pending" && t.state != "fulfilled":
			return []string{"conflict"}
		case hasP && claim && t.state == "pending":
			m.toAcquired(id, o.pid, o.ttl)
			return []string{"ok", v.showP(id), m.showT(id)}
		case hasP && hasT:
			return []string{"ok", v.showP(id), v.showT(id)}
		case hasP:
			return []string{"ok", v.showP(id)}
		}
		p := mPromise{inc: o.born, state: "pending", param: o.value, target: o.target, timer: o.timer, external: o.external,
			timeout: o.timeout, created: o.now, delayed: o.delay}
		if o.timeout <= o.now {
			p.created, p.settled, p.state = o.timeout, o.timeout, "rejected_timedout"
			if o.timer {
				p.state = "resolved"
			}
		}
		m.promises[id] = p
		if o.target == "" {
			return []string{"ok", m.showP(id)}
		}
		m.tasks[id] = mTask{inc: o.born, state: "fulfilled", target: o.target}
		if p.state == "pending" {
			switch {
			case claim:
				m.toAcquired(id, o.pid, o.ttl)
			case o.delay > o.now:
				m.toPending(id, o.delay)
			default:
				m.toPending(id, o.now+modelRetry)
				m.execute(id)
			}
		}
		return []string{"ok", m.showP(id), m.showT(id)}

	case "settle":
		switch {
		case o.to == PromisePending || o.to == PromiseRejectedTimedout:
			return []string{"invalid"}
		case !hasP:
			return []string{"not found"}
		case foreign(mine):
			return []string{"conflict"}
		case p.state != "pending":
			return []string{"ok", v.showP(id)}
		}
		return settled(func() ([]string, func()) { return m.settleNow(id, o.to.String(), o.value, o.now, o.asleep) })

	case "fulfill":
		if o.to == PromisePending || o.to == PromiseRejectedTimedout {
			return []string{"invalid"}
		}
		if refusal := held("acquired"); refusal != "" {
			return []string{refusal}
		}
		return settled(func() ([]string, func()) { return m.settleNow(id, o.to.String(), o.value, o.now, o.asleep) })

	case "deadline":
		if !hasP || foreign(mine) || m.promises[id].state != "pending" || m.live(id) {
			return []string{"ok"}
		}
		return settled(func() ([]string, func()) { return m.settleNow(id, p.state, "", p.timeout, o.asleep) })

	case "callback":
		awaiter := o.others[0]
		own, ok := v.promises[awaiter.ID]
		switch {
		case awaiter.ID == id:
			return []string{"invalid"}
		case !hasP:
			return []string{"not found"}
		case foreign(mine):
			return []string{"conflict"}
		case !ok:
			return []string{"precondition"}
		case foreign(awaiter):
			return []string{"conflict"}
		case own.target == "" || !open(id):
			return []string{"precondition"}
		case p.state == "pending" && own.state == "pending":
			m.waits[[2]string{id, awaiter.ID}] = true
			return []string{"ok", "waiting", v.showP(id)}
		}
		return []string{"ok", v.showP(id)}

	case "listen":
		switch {
		case !hasP:
			return []string{"not found"}
		case foreign(mine):
			return []string{"conflict"}
		case !open(id):
			return []string{"precondition"}
		case p.state == "pending":
			m.listeners[[2]string{id, o.address}] = true
			return []string{"ok", "waiting", v.showP(id)}
		}
		return []string{"ok", v.showP(id)}

	case "acquire":
		if refusal := held("pending"); refusal != "" {
			return []string{refusal}
		}
		m.toAcquired(id, o.pid, o.ttl)
		return []string{"ok", v.showP(id), m.showT(id)}

	case "fence":
		if refusal := held("acquired"); refusal != "" {
			return []string{refusal}
		}
		return []string{"ok", v.showP(id), v.showT(id)}

	case "release":
		if refusal := held("acquired"); refusal != "" {
			return []string{refusal}
		}
		if o.delay > 0 {
			m.toPending(id, o.now+o.delay)
		} else {
			m.toPending(id, o.now+modelRetry)
			m.execute(id)
		}
		return []string{"ok", m.showT(id)}

	case "suspend":
		for _, a := range o.others {
			if a.ID == id {
				return []string{"invalid"}
			}
		}
		if refusal := held("acquired"); refusal != "" {
			return []string{refusal}
		}
		ready := map[string]bool{}
		for _, a := range o.others {
			a2, ok := v.promises[a.ID]
			switch {
			case !ok:
				return []string{"precondition"}
			case foreign(a):
				return []string{"conflict"}
			case !open(a.ID):
				return []string{"precondition"}
			case a2.state != "pending":
				ready[a.ID] = true
			}
		}
		t := m.tasks[id]
		t.inbox = ""
		if len(ready) > 0 {
			m.tasks[id] = t
			lines := []string{"ok", m.showT(id)}
			for _, r := range slices.Sorted(maps.Keys(ready)) {
				lines = append(lines, v.showP(r))
			}
			return lines
		}
		m.tasks[id] = mTask{inc: t.inc, state: "suspended", ver: t.ver, target: t.target}
		for _, a := range o.others {
			m.waits[[2]string{a.ID, id}] = true
		}
		return []string{"ok", m.showT(id)}

	case "heartbeat":
		lines := []string{"ok"}
		for _, r := range o.refs {
			t, ok := v.tasks[r.ID]
			if ok && t.state == "acquired" && t.ver == r.Version && t.holder == o.pid && !foreign(Ref{r.ID, r.Incarnation}) {
				t.due = o.now + t.ttl
				m.tasks[r.ID] = t
				lines = append(lines, r.ID)
			}
		}
		return lines

	case "halt":
		switch {
		case !hasT:
			return []string{"not found"}
		case foreign(mine) || t.state == "fulfilled":
			return []string{"conflict"}
		}
		m.tasks[id] = mTask{inc: t.inc, state: "halted", ver: t.ver, inbox: t.inbox, target: t.target}
		return []string{"ok", m.showT(id)}

	case "continue":
		switch {
		case !hasT:
			return []string{"not found"}
		case foreign(mine) || t.state != "halted":
			return []string{"conflict"}
		}
		m.toPending(id, o.now+modelRetry)
		m.execute(id)
		return []string{"ok", m.showT(id)}

	case "resume":
		m.wake(id, o.others[0].ID)
		return []string{"ok"}

	case "lease timer":
		if hasT && !foreign(mine) && m.tasks[id].state == "acquired" && t.state == "pending" {
			m.toPending(id, o.now+modelRetry)
			m.execute(id)
			return []string{"ok", "done"}
		}
		return []string{"ok"}

	case "retry timer":
		if hasT && !foreign(mine) && m.tasks[id].state == "pending" && t.state == "pending" && t.due <= o.now {
			m.toPending(id, o.now+modelRetry)
			m.execute(id)
			return []string{"ok", "done"}
		}
		return []string{"ok"}

	case "get":
		switch {
		case !hasP:
			return []string{"not found"}
		case foreign(mine):
			return []string{"conflict"}
		case hasT:
			return []string{"ok", v.showP(id), v.showT(id)}
		}
		return []string{"ok", v.showP(id)}

	case "tick":
		var due []string
		for id := range m.promises {
			if v.promises[id].state != m.promises[id].state && m.armed(id) {
				due = append(due, id)
			}
		}
		var halves []func()
		for _, id := range due {
			_, second := m.settleNow(id, v.promises[id].state, "", v.promises[id].timeout, 0)
			halves = append(halves, second)
		}
		for _, second := range halves {
			second()
		}
		for id, t := range m.tasks {
			if (t.state == "acquired" || t.state == "pending") && t.due <= o.now && m.live(id) {
				m.toPending(id, o.now+modelRetry)
				m.execute(id)
			}
		}
		return []string{"ok"}
	}
	panic("no operation " + o.kind)
}
