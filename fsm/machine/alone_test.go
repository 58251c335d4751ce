package machine

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/recovery"
)

// A function that starts several children at once reads once whether an id below its own is taken, while no filter tells.
// Among the remains of others each child reads whether its id is free.
func TestChildrenAmongRemains(t *testing.T) {
	const fanOut = "child g; child g; child g; child g; child g; await 0"
	for _, c := range []struct {
		promise                string
		filter, alone, refused bool
	}{
		{"e:2", false, false, true}, {"e:7.1", false, false, false}, {"e-2:0", false, true, false},
		{"e:2", true, false, true}, {"e-2:0", true, false, false},
	} {
		w := newWorld(t, 1)
		w.unaudited, w.effectsUnchecked = true, true
		m := w.parts[0].m
		v := w.begin("e", "f")
		m.txn.begin(m.applied)
		m.txn.store(ns).PutPromise(recovery.Promise{ID: c.promise, Incarnation: 1 << 40, State: recovery.PromiseResolved, External: true, TimeoutAt: state.Never})
		m.txn.commit(&Effects{})
		if !c.filter {
			m.reads.absences = newAbsences()
		}
		reply := w.one(w.commitCmd(v, fanOut))
		if refused := reply.GetError().GetReason() == perdurev1.Reason_REASON_ID_CONFLICT; refused != c.refused {
			t.Errorf("beside %s: answered %v", c.promise, reply)
		}
		if ex := m.cache.get(ns, "e"); (ex.alone == ex.h.Incarnation) != c.alone {
			t.Errorf("beside %s: alone since incarnation %d of %d", c.promise, ex.alone, ex.h.Incarnation)
		}
	}
}

// What a command's object owed to the time stays applied when the command is refused.
func TestExpirationsOutlastRefusal(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	cmd := w.commitCmd(v, "return r")
	w.now += 1 << 30
	if got := w.one(cmd).GetError(); got.GetReason() != perdurev1.Reason_REASON_STALE_TASK {
		t.Fatalf("a commit after the lease was answered %v", got)
	}
	if task, _ := (state.Must{From: w.parts[0].state}).Task(ns, "e"); task.State != recovery.TaskPending {
		t.Errorf("the task is %s after the end of its lease", task.State)
	}
}
