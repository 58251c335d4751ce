package entity

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// This file is the reference: the high-level model (durable functions semantics, section 4), atomic and
// free of faults. It shares no code with the package but the names of things. Each method is one rule of
// the source (or the few that make up one operation) and returns an error if the rule is not enabled.

// An app is the application that both sides run: what an operation does to a value. It is deterministic,
// as section 3.5 asks of nothing but orchestrations; here it lets results be compared.
//
//	append X   adds X to the value
//	get        shows the value
//	clear      removes the value
//	fail       fails and leaves the value alone
//	relay K X  signals "append X" to entity K
//	remind T   signals "append !" to itself, scheduled for T
func app(self ID, exists bool, value, op, arg string) (existsAfter bool, after, output string, failed bool, sends []Send) {
	output = fmt.Sprintf("%v:%s", exists, value)
	switch op {
	case "append":
		value += arg
		if len(value) > 24 { // keep it short, and still different for different pasts
			h := fnv.New64a()
			h.Write([]byte(value))
			value = strconv.FormatUint(h.Sum64(), 36)
		}
		return true, value, output, false, nil
	case "get":
		return exists, value, output, false, nil
	case "clear":
		return false, "", output, false, nil
	case "fail":
		return exists, value, "failed on " + output, true, nil
	case "relay":
		to, text, _ := strings.Cut(arg, " ")
		return exists, value, output, false, []Send{{To: ID(to), Operation: "append", Input: []byte(text)},
			{To: ID(to), Operation: "append", Input: []byte(text + "'")}}
	case "remind":
		due, _ := strconv.ParseInt(arg, 10, 64)
		return exists, value, output, false, []Send{{To: self, Operation: "append", Input: []byte("!"), DueAt: due}}
	}
	panic("unknown operation " + op)
}

// hlRequest is the source's r, with a time for the scheduled signals of section 3.3.4.
type hlRequest struct {
	origin  Party
	id      string // "" for those of entities, which the model leaves without
	op, arg string
	call    bool
	due     int64
}

func (r hlRequest) String() string {
	return fmt.Sprintf("%s(%s)%s%v/%d", r.op, r.arg, r.id, r.call, r.due)
}

// hlEntity is E_k(q, x). Busy outside a section is not a state here: an operation runs in one step, as
// every rule that an idle entity takes can be delayed until the operation ends.
type hlEntity struct {
	queue  []hlRequest
	exists bool
	value  string
	lock   Section    // the superscript j
	busy   *hlRequest // busy^j: a call of the section is under way
	orphan bool       // the section's holder has ended: the lock ends with the call
}

// hlOrch is O_d: outside any section, at a lock expression, inside, or completed.
type hlOrch struct {
	phase   string
	section Section
	set     []ID
}

type highLevel struct {
	now      int64
	entities map[ID]*hlEntity
	orchs    map[Party]*hlOrch
	results  map[Party]map[string]string // the placeholders that are resolved
}

func newHighLevel(entities []ID, executions []Party) *highLevel {
	h := &highLevel{entities: map[ID]*hlEntity{}, orchs: map[Party]*hlOrch{}, results: map[Party]map[string]string{}}
	for _, k := range entities {
		h.entities[k] = &hlEntity{} // AutoStart
	}
	for _, d := range executions {
		h.orchs[d] = &hlOrch{phase: "outside"}
	}
	return h
}

// send: Orch-Signal-Ent, Orch-Call-Ent, CS-Signal-Ent, CS-Call-Ent; and the same of a client.
func (h *highLevel) send(k ID, r hlRequest) error {
	e := h.entities[k]
	if o, ok := h.orchs[r.origin]; ok {
		switch {
		case o.phase != "outside" && o.phase != "inside":
			return fmt.Errorf("%v is %s", r.origin, o.phase)
		case o.phase == "inside" && r.call:
			if !slices.Contains(o.set, k) || e.lock != o.section {
				return fmt.Errorf("%v has not locked %s", r.origin, k)
			}
			if e.busy != nil {
				return fmt.Errorf("%s is busy", k)
			}
			e.busy = &r
			return nil
		case o.phase == "inside" && slices.Contains(o.set, k):
			return fmt.Errorf("%v has locked %s", r.origin, k)
		}
	}
	e.queue = append(e.queue, r)
	return nil
}

// take: Ent-Take-Call or Ent-Take-Signal, the operation, and Ent-EndCall or Ent-EndSignal.
func (h *highLevel) take(k ID, r hlRequest) error {
	e := h.entities[k]
	if e.lock != (Section{}) {
		return fmt.Errorf("%s is locked by %v", k, e.lock)
	}
	for i, q := range e.queue {
		scheduled := q.due != 0
		switch {
		case q.String() == r.String() && q.origin == r.origin:
			if q.due > h.now {
				return fmt.Errorf("%v is not due at %d", q, h.now)
			}
			e.queue = slices.Delete(e.queue, i, i+1)
			h.run(k, q)
			return nil
		case q.origin == r.origin && !scheduled && r.due == 0:
			return fmt.Errorf("%v of %v at %s is not the oldest of its origin, %v is", r, r.origin, k, q)
		}
	}
	return fmt.Errorf("%v of %v is not in the queue of %s", r, r.origin, k)
}

// endCall: CS-EndCall.
func (h *highLevel) endCall(k ID, d Party, id string) error {
	e := h.entities[k]
	if e.busy == nil || e.busy.origin != d || e.busy.id != id {
		return fmt.Errorf("%s is not busy with %s of %v", k, id, d)
	}
	r := *e.busy
	e.busy = nil
	if e.orphan {
		e.lock, e.orphan = Section{}, false
	}
	h.run(k, r)
	return nil
}

func (h *highLevel) run(k ID, r hlRequest) {
	e := h.entities[k]
	var output string
	var failed bool
	var sends []Send
	e.exists, e.value, output, failed, sends = app(k, e.exists, e.value, r.op, r.arg)
	if r.call {
		if h.results[r.origin] == nil {
			h.results[r.origin] = map[string]string{}
		}
		h.results[r.origin][r.id] = fmt.Sprint(failed, output)
	}
	for _, s := range sends { // Ent-Signal-Ent, Ent-Signal-Self
		to := h.entities[s.To]
		to.queue = append(to.queue, hlRequest{origin: k.party(), op: s.Operation, arg: string(s.Input), due: s.DueAt})
	}
}

// ask: the expression of an orchestration has come to lock<...> e.
func (h *highLevel) ask(d Party, section Section, set []ID) error {
	o := h.orchs[d]
	if o.phase != "outside" {
		return fmt.Errorf("%v is %s", d, o.phase)
	}
	*o = hlOrch{"asking", section, set}
	return nil
}

// enter: CS-Enter.
func (h *highLevel) enter(d Party) error {
	o := h.orchs[d]
	if o.phase != "asking" {
		return fmt.Errorf("%v is %s", d, o.phase)
	}
	for _, k := range o.set {
		if e := h.entities[k]; e.lock != (Section{}) || e.busy != nil {
			return fmt.Errorf("%s is locked by %v", k, e.lock)
		}
	}
	for _, k := range o.set {
		h.entities[k].lock = o.section
	}
	o.phase = "inside"
	return nil
}

// exit: CS-Exit.
func (h *highLevel) exit(d Party) error {
	o := h.orchs[d]
	if o.phase != "inside" {
		return fmt.Errorf("%v is %s", d, o.phase)
	}
	for _, k := range o.set {
		if e := h.entities[k]; e.lock != o.section || e.busy != nil {
			return fmt.Errorf("%s is busy", k)
		}
	}
	for _, k := range o.set {
		h.entities[k].lock = Section{}
	}
	*o = hlOrch{phase: "outside"}
	return nil
}

// outside: a step that only exists outside sections.
func (h *highLevel) outside(d Party) error {
	if p := h.orchs[d].phase; p != "outside" {
		return fmt.Errorf("%v is %s", d, p)
	}
	return nil
}

// end is not in the source, whose orchestrations run to their end: an operator may terminate one anywhere.
// Its idle entities are unlocked at once, a busy one when its call ends.
func (h *highLevel) end(d Party) {
	o := h.orchs[d]
	if o.phase == "inside" {
		for _, k := range o.set {
			if e := h.entities[k]; e.busy != nil {
				e.orphan = true
			} else {
				e.lock = Section{}
			}
		}
	}
	*o = hlOrch{phase: "ended"}
}

// String is the whole state in a form that depends on nothing but what the source gives meaning to: a
// queue is one sequence for each origin, and a set of scheduled signals.
func (h *highLevel) String() string {
	v := newView()
	for _, k := range slices.Sorted(maps.Keys(h.entities)) {
		e := h.entities[k]
		v.entity(k, e.exists, e.value, e.lock)
		if e.busy != nil {
			v.busy(k, *e.busy)
		}
		for _, r := range e.queue {
			v.waiting(k, r)
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(h.orchs), compareParties) {
		o := h.orchs[d]
		v.orch(d, o.phase, o.section, o.set)
	}
	for d, results := range h.results {
		for id, output := range results {
			v.result(d, id, output)
		}
	}
	return v.String()
}

func compareParties(a, b Party) int { return strings.Compare(a.String(), b.String()) }

// view collects a state for comparison.
type view struct {
	lines  []string
	queues map[string][]string // "entity<-origin": in order
}

func newView() *view { return &view{queues: map[string][]string{}} }

func (v *view) add(line string) { v.lines = append(v.lines, line) }

func (v *view) entity(k ID, exists bool, value string, lock Section) {
	v.add("entity " + string(k) + " " + strconv.FormatBool(exists) + " " + value + " lock " + lock.Holder.ID + "/" + lock.ID)
}

func (v *view) busy(k ID, r hlRequest) {
	v.add("busy " + string(k) + " " + r.origin.ID + " " + r.String())
}

func (v *view) waiting(k ID, r hlRequest) {
	if r.due != 0 {
		v.add("scheduled " + string(k) + " " + r.origin.ID + " " + r.String())
		return
	}
	key := "queue " + string(k) + " <- " + r.origin.ID
	v.queues[key] = append(v.queues[key], r.String())
}

func (v *view) orch(d Party, phase string, section Section, set []ID) {
	v.add("execution " + d.ID + " " + phase + " " + section.ID + fmt.Sprint(set))
}

func (v *view) result(d Party, id, output string) { v.add("result " + d.ID + " " + id + " " + output) }

func (v *view) String() string {
	lines := slices.Clone(v.lines)
	for key, list := range v.queues {
		lines = append(lines, key+": "+strings.Join(list, ", "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
