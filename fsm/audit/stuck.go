package audit

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// halted checks that a function's task is halted only while its execution is listed as stuck. Entities halt
// theirs while nothing is queued.
func (a *auditor) halted(ns string, t recovery.Task) {
	if _, entity := id.EntityOfTask(t.ID); entity || t.State != recovery.TaskHalted {
		return
	}
	if !a.Has(keys.Of(keys.Stuck, ns, state.QueueOf(ns, t.Target).Function, t.ID)) {
		a.found(ns, t.ID, RuleCode, "its task is halted, and it is not listed as stuck")
	}
}

// stuck checks that a listed execution is stuck: its task is halted, and of the function under which it is listed.
func (a *auditor) stuck(key, _ []byte) {
	ns, more, _, ok := a.parts(key, 2)
	if !ok {
		return
	}
	t, ok := a.storedTask(ns, more[1])
	if !ok || t.State != recovery.TaskHalted || state.QueueOf(ns, t.Target).Function != more[0] {
		a.found(ns, more[1], RuleCode, "listed as stuck in %q, and %s", more[0], describeTask(t, ok))
	}
}
