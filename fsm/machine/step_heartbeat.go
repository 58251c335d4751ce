package machine

import (
	"bytes"
	"slices"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
)

// This file is about what running steps report by heartbeats. An incarnation has the last heartbeat of each
// of its steps without a result. It is dropped with the step's result, or at the incarnation's end.

// reported stores the heartbeats of an execution's steps, whose task the reporting worker holds. It ignores
// those of a step that has a result, or that the execution has not come to.
func (t *txn) reported(ex *execution, steps []*perdurev1.StepHeartbeat) {
	if t.m.feature < state.LevelFunctions || ex.h.Status.Terminal() {
		return // replicas without the feature level know no heartbeats of steps
	}
	stored := t.heartbeats(ex)
	changed := false
	for _, step := range steps {
		n, ok := id.PromiseID(step.PromiseId).IsChildOf(id.PromiseID(ex.h.ID))
		if !ok || len(step.Details) > id.MaxHeartbeatBytes || n > ex.j.NextChild() {
			continue
		}
		one := state.StepHeartbeat{Child: n, Name: step.Name, Attempt: step.Attempt, AtMS: t.now}
		if len(step.Details) > 0 {
			one.Details = bytes.Clone(step.Details)
		}
		at, known := slices.BinarySearchFunc(stored, n, func(s state.StepHeartbeat, n uint32) int { return int(int64(s.Child) - int64(n)) })
		switch {
		case !ex.running(one) || !known && len(stored) == state.MaxHeartbeats:
			continue
		case known:
			stored[at] = one
		default:
			stored = slices.Insert(stored, at, one)
		}
		changed = true
	}
	if changed {
		t.putHeartbeats(ex, stored)
	}
}

// running reports whether a heartbeat is of a step without a result, or of the operation that the execution
// begins next.
func (ex *execution) running(s state.StepHeartbeat) bool {
	inv, ok := ex.j.Invoke(id.PromiseID(ex.h.ID).Child(s.Child))
	if !ok {
		return s.Child == ex.j.NextChild()
	}
	return !inv.Completed && state.RunsLocally(inv.Kind)
}

// trimHeartbeats drops the heartbeats of steps that have a result now.
func (t *txn) trimHeartbeats(ex *execution) {
	if ex.h.HeartbeatAt == 0 || ex.h.Status.Terminal() {
		return
	}
	stored := t.heartbeats(ex)
	if kept := slices.DeleteFunc(slices.Clone(stored), func(s state.StepHeartbeat) bool { return !ex.running(s) }); len(kept) < len(stored) {
		t.putHeartbeats(ex, kept)
	}
}

// heartbeats reads the stored heartbeats of an execution.
func (t *txn) heartbeats(ex *execution) []state.StepHeartbeat {
	if ex.h.HeartbeatAt == 0 {
		return nil
	}
	return state.Must{From: t}.Heartbeats(ex.ns, ex.h.ID, ex.h.Incarnation)
}

func (t *txn) putHeartbeats(ex *execution, steps []state.StepHeartbeat) {
	if len(steps) == 0 {
		t.dropHeartbeats(ex)
		return
	}
	ex.h.HeartbeatAt, ex.dirty = 0, true
	for _, s := range steps {
		ex.h.HeartbeatAt = max(ex.h.HeartbeatAt, s.AtMS)
	}
	t.put(keys.HeartbeatOf(ex.ns, ex.h.ID, ex.h.Incarnation), state.EncodeHeartbeats(steps))
}

// dropHeartbeats deletes the heartbeats of an execution's steps.
func (t *txn) dropHeartbeats(ex *execution) {
	if ex.h.HeartbeatAt != 0 {
		t.remove(keys.HeartbeatOf(ex.ns, ex.h.ID, ex.h.Incarnation))
		ex.h.HeartbeatAt, ex.dirty = 0, true
	}
}
