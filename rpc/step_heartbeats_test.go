package rpc_test

import (
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// TestStepHeartbeats: what a step reports is in describe, and comes with the task to the next worker.
func TestStepHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}, Capacity: 1, LeaseMs: 600_000})
	w.start("e", "f")
	task := s.task()
	if len(task.GetSteps()) != 0 {
		t.Errorf("a new task has heartbeats %v", task.GetSteps())
	}
	beat := func(steps ...*perdurev1.StepHeartbeat) *perdurev1.WorkResponse {
		t.Helper()
		return receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{
			Heartbeat: &perdurev1.Heartbeat{Tasks: []*perdurev1.TaskToken{task.Token}, Steps: steps}}}))
	}
	step := func(promise, name string, details int) *perdurev1.StepHeartbeat {
		return &perdurev1.StepHeartbeat{PromiseId: promise, Name: name, Attempt: 1, Details: []byte(strings.Repeat("x", details)), AtMs: 1}
	}
	var many []*perdurev1.StepHeartbeat
	for range 1025 {
		many = append(many, step("e:0", "s", 0))
	}
	var heavy []*perdurev1.StepHeartbeat
	for range 257 {
		heavy = append(heavy, step("e:0", "s", id.MaxHeartbeatBytes))
	}
	tooLarge := perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE
	callRefused(t, "a step of another task", beat(step("other:0", "s", 1)), bad)
	callRefused(t, "a step of no task", beat(step("e", "s", 1)), bad)
	callRefused(t, "a malformed step", beat(step("e:01", "s", 1)), badID)
	callRefused(t, "a step without a name", beat(step("e:0", "", 1)), bad)
	callRefused(t, "a step with a long name", beat(step("e:0", strings.Repeat("n", 257), 1)), bad)
	callRefused(t, "large details", beat(step("e:0", "s", id.MaxHeartbeatBytes+1)), tooLarge)
	callRefused(t, "large details in all", beat(heavy...), tooLarge)
	callRefused(t, "many steps", beat(many...), bad)
	callRefused(t, "a release with another task's step", receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{
		Release: &perdurev1.Release{Task: task.Token, Steps: []*perdurev1.StepHeartbeat{step("other:0", "s", 1)}}}})), bad)
	if steps := w.describe("e").GetSteps(); len(steps) != 0 {
		t.Errorf("refused heartbeats are stored: %v", steps)
	}
	if m := beat(step("e:0", "s", 7)); m.GetHeartbeat() == nil || len(m.GetHeartbeat().GetLost()) != 0 {
		t.Fatalf("a heartbeat was answered %v", m)
	}
	if steps := w.describe("e").GetSteps(); len(steps) != 1 || len(steps[0].Details) != 7 || steps[0].AtMs < 1000 || steps[0].PromiseId != "e:0" {
		t.Errorf("describe has %v", steps)
	}
	release := &perdurev1.Release{Task: task.Token, Credit: 1, Steps: []*perdurev1.StepHeartbeat{step("e:0", "s", 9)}}
	if m := receive(t, "answer", s.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Release{Release: release}})); m.GetRelease() == nil {
		t.Fatalf("a release was answered %v", m)
	}
	task = s.task()
	if steps := task.GetSteps(); len(steps) != 1 || len(steps[0].Details) != 9 || steps[0].Name != "s" {
		t.Errorf("the task comes with %v", steps)
	}
}
