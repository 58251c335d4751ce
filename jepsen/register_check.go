package jepsen

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// RegisterKind is the kind of an operation on a register.
type RegisterKind string

// The operations. A promise that does not exist yet is a register that is absent.
const (
	RegisterCreate RegisterKind = "create"
	RegisterSettle RegisterKind = "settle"
	RegisterGet    RegisterKind = "get"
)

// RegisterState is the state of a promise as an answer shows it. The zero value is an absent one.
type RegisterState struct {
	Created bool
	Param   string // of the one who created it
	Value   string // of the one who settled it: "resolved x" or "rejected x"; empty while pending
}

// String is short, for reports.
func (s RegisterState) String() string {
	switch {
	case !s.Created:
		return "absent"
	case s.Value == "":
		return s.Param + ", pending"
	}
	return s.Param + ", " + s.Value
}

// RegisterOp is one operation on one promise and its answer. Only operations that took place are in a
// history: a read without an answer and a write that was surely not applied are left out.
type RegisterOp struct {
	Client int
	ID     string
	Kind   RegisterKind
	// Value is what is written: the param of a create, the value of a settle.
	Value string
	// Called and Answered are times of one monotonic clock.
	Called, Answered time.Duration
	// Open says that there was no answer to a write: it may have taken place at any time after Called, or
	// may still do so, or never.
	Open bool
	// Deadline is how long after its creation the promise times out; 0 for never.
	Deadline time.Duration
	// Seen is the answer.
	Seen RegisterState
}

// timedOut is the value of a promise whose deadline has passed.
const timedOut = "timed out"

// String is one line of a report.
func (o RegisterOp) String() string {
	end, seen := fmt.Sprintf("%.6f", o.Answered.Seconds()), o.Seen.String()
	if o.Open {
		end, seen = "open", "?"
	}
	return fmt.Sprintf("client %d, %.6f to %s: %s %s -> %s", o.Client, o.Called.Seconds(), end, o.Kind, o.Value, seen)
}

// next is the state of a register after an operation: create and settle each succeed once.
func (o RegisterOp) next(s RegisterState) RegisterState {
	switch {
	case o.Kind == RegisterCreate && !s.Created:
		return RegisterState{Created: true, Param: o.Value}
	case o.Kind == RegisterSettle && s.Created && s.Value == "":
		s.Value = o.Value
	}
	return s
}

// registerModel is the write-once register. Every operation answers with the state it leaves. An open
// operation has no answer and ends with the history. So it may take effect at any moment after its call, also
// at the end, where its change is not seen. A pending promise with a deadline times out at some moment before
// the first answer that shows so, and has timed out from then on.
var registerModel = porcupine.Model{
	Init: func() any { return RegisterState{} },
	Step: func(state, input, _ any) (bool, any) {
		op, s := input.(RegisterOp), state.(RegisterState)
		if !op.Open && op.Deadline > 0 && op.Seen.Value == timedOut && s.Created && s.Value == "" {
			s.Value = timedOut
		}
		next := op.next(s)
		return op.Open || op.Seen == next, next
	},
	Equal: func(a, b any) bool { return a.(RegisterState) == b.(RegisterState) },
}

// RegisterVerdict is the checker's result about a history.
type RegisterVerdict struct {
	IDs, Ops, Open int
	// Violations are the histories of ids that no order explains.
	Violations []string
	// Late are the histories of ids that are explained only if a create may take effect at one moment and
	// answer with the state of a later one: a create that was sent again, because its first answer was lost,
	// is answered with the promise as it is by then.
	Late []string
	// Early are promises that timed out before their deadlines. TimedOut counts those that timed out.
	Early    []string
	TimedOut int
	// Undecided are those that the checker did not decide in time. They do not pass.
	Undecided []string
}

// OK says that every id's history has an explanation, in which no answer was late and no deadline early.
func (v *RegisterVerdict) OK() bool {
	return len(v.Violations)+len(v.Late)+len(v.Early)+len(v.Undecided) == 0
}

// word is the verdict in a word or two.
func (v *RegisterVerdict) word() string {
	switch {
	case v.OK():
		return "ok"
	case len(v.Violations)+len(v.Early)+len(v.Undecided) == 0:
		return fmt.Sprintf("%d late answers", len(v.Late))
	}
	return "NOT OK"
}

// CheckRegister asks for each id whether some order of its operations, in keeping with their times, explains
// every answer. The checker gives up on an id after timeout; 0 means 30 s, far more than a few dozen
// operations need, even while the checker waits for a core. A deadline may pass sooner by slack.
func CheckRegister(history []RegisterOp, timeout, slack time.Duration) RegisterVerdict {
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	byID := map[string][]RegisterOp{}
	var ids []string
	v := RegisterVerdict{Ops: len(history)}
	for _, o := range history {
		if byID[o.ID] == nil {
			ids = append(ids, o.ID)
		}
		byID[o.ID] = append(byID[o.ID], o)
		if o.Open {
			v.Open++
		}
	}
	v.IDs = len(ids)
	slices.Sort(ids)
	for _, name := range ids {
		verdict := porcupine.CheckOperationsTimeout(registerModel, operations(byID[name], false), timeout)
		late := false
		if verdict == porcupine.Illegal {
			verdict = porcupine.CheckOperationsTimeout(registerModel, operations(byID[name], true), timeout)
			late = verdict == porcupine.Ok
		}
		switch {
		case late:
			v.Late = append(v.Late, describe(name, "a create is answered with a state later than its effect", byID[name]))
		case verdict == porcupine.Illegal:
			v.Violations = append(v.Violations, describe(name, "no order explains the answers", byID[name]))
		case verdict == porcupine.Unknown:
			v.Undecided = append(v.Undecided, describe(name, fmt.Sprintf("not decided within %v", timeout), byID[name]))
		}
		v.checkDeadline(name, byID[name], slack)
	}
	return v
}

// checkDeadline checks whether the promise timed out too early: it was created no sooner than the call of the
// create whose param it has.
func (v *RegisterVerdict) checkDeadline(name string, ops []RegisterOp, slack time.Duration) {
	called := map[string]time.Duration{}
	for _, o := range ops {
		if o.Kind == RegisterCreate {
			called[o.Value] = o.Called
		}
	}
	found, early := false, time.Duration(0)
	for _, o := range ops {
		created, known := called[o.Seen.Param]
		if o.Open || o.Seen.Value != timedOut || !known {
			continue // an unknown param is no order's
		}
		found = true
		early = max(early, created+o.Deadline-slack-o.Answered)
	}
	if found {
		v.TimedOut++
	}
	if early > 0 {
		v.Early = append(v.Early, describe(name, "it timed out "+short3(early)+" before its deadline", ops))
	}
}

// operations are the operations on one id as the checker takes them. With late, an answered create is two
// of them in the same time, an effect without an answer and a read: the read that sees the create's own
// param cannot come first, and with another's it does not matter.
func operations(history []RegisterOp, late bool) []porcupine.Operation {
	var out []porcupine.Operation
	add := func(o RegisterOp, end int64) {
		out = append(out, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Called), Return: end})
	}
	for _, o := range history {
		switch {
		case o.Open:
			add(o, math.MaxInt64)
		case late && o.Kind == RegisterCreate:
			effect, read := o, o
			effect.Open, read.Kind = true, RegisterGet
			add(effect, int64(o.Answered))
			add(read, int64(o.Answered))
		default:
			add(o, int64(o.Answered))
		}
	}
	return out
}

// describe lists the operations on one id.
func describe(name, what string, ops []RegisterOp) string {
	ops = slices.Clone(ops)
	slices.SortStableFunc(ops, func(a, b RegisterOp) int { return int(a.Called - b.Called) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", name, what)
	for _, o := range ops {
		b.WriteString("\n    ")
		b.WriteString(o.String())
	}
	return b.String()
}
