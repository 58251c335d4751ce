package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Report is the outcome of the orders, found in the results and in the world's files, and its differences
// from Expect.
type Report struct {
	Orders  int
	Shipped int
	// Failed counts by reason.
	Failed map[string]int
	// Charged and Refunded are in cents, by currency. An effect that was repeated counts once.
	Charged, Refunded map[string]int64
	Emails            int
	// Steps is how many steps acted on the world, each counted once.
	Steps int
	// Retries are the attempts that had no effect, because the other side could not be reached: another one
	// followed.
	Retries int
	// Repeats are the effects that came again: their step had acted, and its result was not recorded yet
	// when its worker was lost. There can be as many for each crash as there were steps running.
	Repeats []Effect
	// Reruns are the effects that came again after their step had been acknowledged. There must be none.
	Reruns []Effect
	// Torn counts half lines, left by a process that was killed while it wrote.
	Torn int
	// Differences from Expect, and all other violations. Empty: no problem.
	Differences []string
}

// CheckFiles reads the world's files in dir and checks them.
func CheckFiles(dir string, book Book, results map[string]Result) (Report, error) {
	effects, torn1, err := readLog(filepath.Join(dir, effectsFile), ParseEffect)
	if err != nil {
		return Report{}, err
	}
	acks, torn2, err := readLog(filepath.Join(dir, acksFile), ParseAck)
	if err != nil {
		return Report{}, err
	}
	r := Check(book, results, effects, acks)
	r.Torn = torn1 + torn2
	return r, nil
}

// Check checks the orders of the book: the result of each against Expect, the effects of its steps against
// the result, and the acknowledgements against the effects. Effects and acknowledgements are in the order in
// which they were written; those of other orders are left out.
func Check(book Book, results map[string]Result, effects []Effect, acks []Ack) Report {
	r := Report{Orders: len(book.Orders), Failed: map[string]int{}, Charged: map[string]int64{}, Refunded: map[string]int64{}}
	found := map[string]*footprint{}
	for _, o := range book.Orders {
		found[o.ID()] = &footprint{done: map[string]map[string]int64{}}
	}
	acked := ackTimes(acks)
	r.follow(effects, acked, found)
	for _, o := range book.Orders {
		r.check(o, Expect(o, book.Stock), results, found[o.ID()], acked)
	}
	return r
}

// footprint is an order's effects on the world.
type footprint struct {
	// done has the cents of each effect that was done, by step and promise id.
	done     map[string]map[string]int64
	promises map[string]string // of all effects: the step of each
}

// cents is the sum over the effects of a step.
func (f *footprint) cents(step string) (sum int64) {
	for _, c := range f.done[step] {
		sum += c
	}
	return sum
}

// last reports whether a step is the last one of its execution that acted: its acknowledgement is the execution's end.
func (f *footprint) last(promise string) bool {
	for other := range f.promises {
		if execution(other) == execution(promise) && child(other) > child(promise) {
			return false
		}
	}
	return true
}

// child is the number of a step in its execution.
func child(promise string) int {
	n, _ := strconv.Atoi(promise[len(execution(promise))+1:])
	return n
}

// ackTimes is when each promise was acknowledged first.
func ackTimes(acks []Ack) map[string]time.Time {
	first := map[string]time.Time{}
	for _, a := range acks {
		if at, known := first[a.Promise]; !known || a.Time.Before(at) {
			first[a.Promise] = a.Time
		}
	}
	return first
}

// follow goes through the effects and finds those that came again. A step that could not reach the other
// side and is tried again is no repeat: nothing had happened.
func (r *Report) follow(effects []Effect, acked map[string]time.Time, found map[string]*footprint) {
	type history struct {
		acted    bool
		attempts map[uint32]bool
	}
	seen := map[string]*history{}
	for _, e := range effects {
		f := found[e.Order]
		if f == nil {
			continue
		}
		h := seen[e.Promise]
		if h == nil {
			h = &history{attempts: map[uint32]bool{}}
			seen[e.Promise] = h
			r.Steps++
		}
		if h.acted || h.attempts[e.Attempt] {
			r.Repeats = append(r.Repeats, e)
		}
		if e.Outcome == outcomeTransient && !h.attempts[e.Attempt] {
			r.Retries++
		}
		h.attempts[e.Attempt] = true
		h.acted = h.acted || e.Outcome != outcomeTransient
		if at, ok := acked[e.Promise]; ok && e.Time.After(at) {
			r.Reruns = append(r.Reruns, e)
			r.differ("%s: step %s (%s) was acknowledged at %s and ran again at %s", e.Order, e.Step, e.Promise,
				at.Format(timeFormat), e.Time.Format(timeFormat))
		}
		if f.promises == nil {
			f.promises = map[string]string{}
		}
		f.promises[e.Promise] = e.Step
		if e.Outcome == outcomeDone {
			if f.done[e.Step] == nil {
				f.done[e.Step] = map[string]int64{}
			}
			f.done[e.Step][e.Promise] = e.Cents
		}
	}
}

func (r *Report) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

// check adds one order to the totals and compares it with what was expected.
func (r *Report) check(o Order, want Expectation, results map[string]Result, f *footprint, acked map[string]time.Time) {
	id := o.ID()
	r.Emails += len(f.done[StepConfirm]) + len(f.done[StepApologize])
	r.Charged[o.Currency] += f.cents(StepCharge)
	r.Refunded[o.Currency] += f.cents(StepRefund)

	got, ended := results[id]
	switch {
	case !ended:
		r.differ("%s: has no result", id)
		return
	case got.Status == StatusShipped:
		r.Shipped++
	default:
		r.Failed[got.Reason]++
	}
	if got.Status != want.Status || got.Reason != want.Reason {
		r.differ("%s: %s, expected %s", id, outcome(got.Status, got.Reason), outcome(want.Status, want.Reason))
	}
	if got.Order != id || got.Currency != o.Currency || got.Charged != want.Charged || got.Refunded != want.Refunded {
		r.differ("%s: the result says %q, charged %d and refunded %d %s, expected %d and %d %s", id, got.Order,
			got.Charged, got.Refunded, got.Currency, want.Charged, want.Refunded, o.Currency)
	}
	if c, b := f.cents(StepCharge), f.cents(StepRefund); c != want.Charged || b != want.Refunded {
		r.differ("%s: the gateway has charged %d and refunded %d, expected %d and %d", id, c, b, want.Charged, want.Refunded)
	}
	steps := slices.Sorted(maps.Keys(want.Steps))
	for step := range f.done {
		if step != StepCall && want.Steps[step] == 0 {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	for _, step := range steps {
		if n := len(f.done[step]); n != want.Steps[step] {
			r.differ("%s: %d times %s, expected %d", id, n, step, want.Steps[step])
		}
	}
	for _, promise := range slices.Sorted(maps.Keys(f.promises)) {
		if _, ok := acked[promise]; !ok && !f.last(promise) {
			r.differ("%s: step %s (%s) ran and was never acknowledged, and yet the order has ended", id, f.promises[promise], promise)
		}
	}
}

func outcome(status, reason string) string {
	if reason == "" {
		return status
	}
	return status + " (" + reason + ")"
}

// OK reports whether there are no differences.
func (r *Report) OK() bool { return len(r.Differences) == 0 }

// Expected is the report of a run in which everything goes as Expect says, without a step repeated.
func Expected(book Book) Report {
	r := Report{Orders: len(book.Orders), Failed: map[string]int{}, Charged: map[string]int64{}, Refunded: map[string]int64{}}
	for _, o := range book.Orders {
		e := Expect(o, book.Stock)
		if e.Status == StatusShipped {
			r.Shipped++
		} else {
			r.Failed[e.Reason]++
		}
		r.Charged[o.Currency] += e.Charged
		r.Refunded[o.Currency] += e.Refunded
		r.Emails += e.Steps[StepConfirm] + e.Steps[StepApologize]
	}
	return r
}

// CompareTotals adds what differs between the totals of r and those of want.
func (r *Report) CompareTotals(want Report) {
	total := func(what string, got, want any) {
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			r.differ("total of %s: %s, expected %s", what, g, w)
		}
	}
	total("orders", r.Orders, want.Orders)
	total("shipped", r.Shipped, want.Shipped)
	total("failed", r.Failed, want.Failed)
	total("cents charged", r.Charged, want.Charged)
	total("cents refunded", r.Refunded, want.Refunded)
	total("e-mails", r.Emails, want.Emails)
}
