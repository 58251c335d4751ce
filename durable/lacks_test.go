package durable

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestLacks distinguishes a reply that leaves out others' entries from one without any.
func TestLacks(t *testing.T) {
	const (
		running    = perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING
		cancelling = perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING
	)
	step := &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{}}
	wait := &perdurev1.Event{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{}}}
	for _, c := range []struct {
		what    string
		own     []*perdurev1.Event
		entries int
		next    uint64
		status  perdurev1.ExecutionStatus
		want    bool
	}{
		{"nothing new", nil, 0, 10, running, false},
		{"nothing new, cancelling", nil, 0, 10, cancelling, false},
		{"its own", []*perdurev1.Event{step}, 0, 11, running, false},
		{"its own, and a wait that is not recorded", []*perdurev1.Event{step, wait}, 0, 11, running, false},
		{"others' too, reported", []*perdurev1.Event{step}, 2, 13, running, false},
		{"others' too, left out", []*perdurev1.Event{step}, 0, 13, running, true},
		{"one of another's instead of the wait", []*perdurev1.Event{step, wait}, 0, 12, running, true},
		{"others' only, left out", []*perdurev1.Event{wait}, 0, 11, running, true},
		{"cancelling: by an unknown writer", []*perdurev1.Event{step}, 0, 11, cancelling, true},
		{"cancelling, reported", []*perdurev1.Event{step}, 1, 11, cancelling, false},
		{"repeated after more was seen", []*perdurev1.Event{step}, 0, 9, running, false},
	} {
		r := history{next: 10}
		reply := &perdurev1.CommitReply{NextSeq: c.next, Status: c.status, Entries: make([]*perdurev1.JournalEntry, c.entries)}
		if got := r.lacks(c.own, reply); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
