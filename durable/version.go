package durable

import (
	"fmt"
	"strconv"

	perdurev1 "perdure/api/perdure/v1"
)

// Version reports which version of a change this execution runs, the same at every replay. Code asks for it where it
// differs from what running executions have recorded, and branches on the answer:
//
//	v, err := durable.Version(ctx, "fraud-check", 0, 1)
//	if err == nil && v >= 1 {
//		_, err = durable.Run(ctx, "check-fraud", checkFraud)
//	}
//
// An execution that was here before the change gets 0, any other gets highest, which is recorded. lowest and
// highest bound the versions that the code still has: with another one the worker releases the task with a
// MismatchError. Once no execution before the change is left, raise lowest to 1 and delete the old branch;
// keep the call until none of the executions that recorded it is left. Every call for one change in one
// execution gives the same version.
func Version(ctx Context, change string, lowest, highest int) (int, error) {
	t, err := enterNamed(ctx, "Version", change)
	if err != nil {
		return 0, err
	}
	if lowest < 0 || lowest > highest || change == "" {
		t.failTask(fmt.Errorf("durable: Version(%q, %d, %d) needs a name and 0 <= lowest <= highest", change, lowest, highest))
	}
	v, known := t.versions[change]
	if !known {
		if v, err = t.version("version:"+change, highest); err != nil {
			return 0, err
		}
		if t.versions == nil {
			t.versions = map[string]int{}
		}
		t.versions[change] = v
	}
	if v < lowest || v > highest {
		t.failTask(&MismatchError{ID: t.child(t.next), Journal: fmt.Sprintf("version %d of change %q", v, change),
			Code: fmt.Sprintf("the code has versions %d to %d of it", lowest, highest)})
	}
	return v, nil
}

// version replays or records the marker of a change: a step whose result is the version. The journal of an execution
// that was here before the change has another operation in its place.
func (t *activation) version(name string, highest int) (int, error) {
	if rec := t.journal.op(t.next); rec != nil && (rec.kind != opStep || rec.name != name) {
		return 0, nil
	}
	n, rec, err := t.take(opStep, name)
	if err != nil {
		return 0, err
	}
	if rec != nil {
		data, err := t.outcome(n, t.codec)
		if err != nil {
			return 0, err
		}
		v, err := strconv.Atoi(string(data))
		if err != nil {
			t.failTask(fmt.Errorf("durable: %s: the version is %q", t.child(n), data))
		}
		return v, nil
	}
	id := t.child(n)
	err = t.stage(nil, nil,
		&perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: id, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: name, RetryPolicy: "attempts=1"}}},
		&perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: id, Attempt: 1}}},
		&perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: id, Attempt: 1,
			Result: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: strconv.AppendInt(nil, int64(highest), 10)}}}}})
	return highest, err
}
