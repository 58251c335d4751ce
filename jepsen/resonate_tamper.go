package jepsen

import (
	"net/http"
	"slices"
)

// resonateTamper changes one answer of a history into one that a broken server might give. It returns false if the
// history has no answer that the change certainly makes wrong.
type resonateTamper func(h []ResonateOp) bool

// resonateTampers are the kinds of changes.
var resonateTampers = []struct {
	name   string
	change resonateTamper
}{
	{"stale-get", staleGet},
	{"second-settle", secondSettle},
	{"second-acquire", secondAcquire},
	{"lost-create", lostCreate},
	{"former-holder", formerHolder},
	{"lost-resume", lostResume},
	{"changed-time", changedTime},
	{"early-expiry", earlyExpiry},
}

// ResonateTampers are the names that ResonateHistoryOptions.Tamper takes.
func ResonateTampers() []string {
	var out []string
	for _, t := range resonateTampers {
		out = append(out, t.name)
	}
	return out
}

// tampered returns those histories of which the named change, or any one if the name is "all", made a wrong one.
func tampered(name string, origins [][]ResonateOp) (out [][]ResonateOp) {
	for _, t := range resonateTampers {
		if name != t.name && name != "all" {
			continue
		}
		for _, history := range origins {
			if h := slices.Clone(history); t.change(h) {
				out = append(out, h)
			}
		}
	}
	return out
}

// findPair finds a first request and a second one, called after the first was answered, that fit.
func findPair(h []ResonateOp, fits func(first, second *ResonateOp) bool) (first, second *ResonateOp) {
	for i := range h {
		for j := range h {
			if !h[i].Open && !h[j].Open && h[i].Answered < h[j].Called && fits(&h[i], &h[j]) {
				return &h[i], &h[j]
			}
		}
	}
	return nil, nil
}

// settledPromise reports whether an answer shows the promise settled.
func (o *ResonateOp) settledPromise(id string) bool {
	return o.Answer.Promise.ID == id && o.Answer.Promise.State != "pending"
}

// staleGet: a read that began after an answer showed the settlement shows the promise pending.
func staleGet(h []ResonateOp) bool {
	_, read := findPair(h, func(first, second *ResonateOp) bool {
		return second.Kind == promiseGet && first.settledPromise(second.ID) && second.settledPromise(second.ID)
	})
	if read == nil {
		return false
	}
	p := &read.Answer.Promise
	p.State, p.Value, p.SettledAt = "pending", noValue, 0
	return true
}

// secondSettle: a settle wins over an earlier one.
func secondSettle(h []ResonateOp) bool {
	_, again := findPair(h, func(first, second *ResonateOp) bool {
		return second.Kind == promiseSettle && first.settledPromise(second.ID) && second.settledPromise(second.ID) &&
			(second.Answer.Promise.State != second.Settle.State || second.Answer.Promise.Value != canonical(second.Settle.Value))
	})
	if again == nil {
		return false
	}
	again.Answer.Promise.State, again.Answer.Promise.Value = again.Settle.State, canonical(again.Settle.Value)
	return true
}

// secondAcquire: two acquires of one version succeed.
func secondAcquire(h []ResonateOp) bool {
	for i := range h {
		for j := range h {
			won, lost := &h[i], &h[j]
			if i == j || won.Kind != taskAcquire || won.Answer.Status != http.StatusOK || won.Answer.Task.State != "acquired" ||
				lost.Kind != taskAcquire || lost.Answer.Status != http.StatusConflict || lost.ID != won.ID || lost.Version != won.Version {
				continue
			}
			lost.Answer = won.Answer
			lost.Answer.Task.PID, lost.Answer.Task.TTL = lost.PID, lost.TTL
			return true
		}
	}
	return false
}

// lostCreate: a promise that was there is not.
func lostCreate(h []ResonateOp) bool {
	_, read := findPair(h, func(first, second *ResonateOp) bool {
		return first.Kind == promiseCreate && second.Kind == promiseGet && first.ID == second.ID
	})
	if read == nil {
		return false
	}
	read.Answer = ResonateAnswer{Status: http.StatusNotFound}
	return true
}

// formerHolder: a release at a version that is no longer the task's succeeds.
func formerHolder(h []ResonateOp) bool {
	_, late := findPair(h, func(first, second *ResonateOp) bool {
		return second.Kind == taskRelease && second.Answer.Status == http.StatusConflict &&
			first.Answer.Task.ID == second.ID && first.Answer.Task.Version > second.Version
	})
	if late == nil {
		return false
	}
	late.Answer = ResonateAnswer{Status: http.StatusOK}
	return true
}

// lostResume: a task is still suspended after a promise that it awaits has been settled.
func lostResume(h []ResonateOp) bool {
	suspends := func(o *ResonateOp, id string) bool {
		return o.Kind == taskSuspend && o.ID == id && (o.Open || o.Answer.Status == http.StatusOK)
	}
	for i := range h {
		slept := &h[i]
		if slept.Open || !suspends(slept, slept.ID) || slices.ContainsFunc(h, func(o ResonateOp) bool { return o.Called != slept.Called && suspends(&o, slept.ID) }) {
			continue // another suspend may come after the settlement
		}
		_, read := findPair(h, func(first, second *ResonateOp) bool {
			return second.Kind == taskGet && second.Answer.Task.ID == slept.ID && second.Called > slept.Answered && second.Answer.Task.State != "suspended" &&
				slices.ContainsFunc(slept.Awaited, first.settledPromise)
		})
		if read != nil {
			read.Answer.Task = ResonateTask{ID: slept.ID, State: "suspended", Version: slept.Version}
			return true
		}
	}
	return false
}

// changedTime: a promise was created at another time than an earlier answer said.
func changedTime(h []ResonateOp) bool {
	_, read := findPair(h, func(first, second *ResonateOp) bool {
		return second.Answer.Promise.ID != "" && first.Answer.Promise.ID == second.Answer.Promise.ID
	})
	if read == nil {
		return false
	}
	read.Answer.Promise.CreatedAt++
	return true
}

// earlyExpiry: a task whose lease outlasts the run is pending at its holder's version, though nobody gave it back.
func earlyExpiry(h []ResonateOp) bool {
	_, read := findPair(h, func(first, second *ResonateOp) bool {
		seen, now := first.Answer.Task, second.Answer.Task
		return second.Kind == taskGet && now.TTL >= shortLease && seen.ID == now.ID && seen.State == now.State && seen.Version == now.Version &&
			!slices.ContainsFunc(h, func(o ResonateOp) bool {
				returns := (o.Kind == taskRelease || o.Kind == taskSuspend) && o.Version == now.Version || o.Kind == taskContinue
				return returns && o.ID == now.ID && (o.Open || o.Answer.Status == http.StatusOK)
			})
	})
	if read == nil {
		return false
	}
	t := &read.Answer.Task
	t.State, t.PID, t.TTL = "pending", "", 0
	return true
}
