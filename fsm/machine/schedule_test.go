package machine

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// scheduleCmd is a command about a schedule.
func scheduleCmd(kind any) *commandv1.Command {
	cmd := &commandv1.Command{Namespace: ns}
	switch k := kind.(type) {
	case *perdurev1.CreateScheduleRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_CreateSchedule{CreateSchedule: k}
	case *perdurev1.AdvanceScheduleRequest:
		k.Namespace = ns
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_AdvanceSchedule{AdvanceSchedule: k}
	case *perdurev1.DeleteScheduleRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_DeleteSchedule{DeleteSchedule: k}
	}
	return cmd
}

// scheduled applies a command about a schedule and returns the schedule.
func (w *world) scheduled(kind any) *perdurev1.Schedule {
	w.t.Helper()
	return w.do(scheduleCmd(kind)).GetSchedule().GetSchedule()
}

// everyMinute is a schedule whose first run is at a time.
func everyMinute(scheduleID string, first int64) *perdurev1.CreateScheduleRequest {
	return &perdurev1.CreateScheduleRequest{Id: scheduleID, Cron: "* * * * *", PromiseId: "{{.id}}-{{.timestamp}}", PromiseTimeoutMs: 1000,
		PromiseParam: &perdurev1.Value{Data: []byte("in")}, PromiseTags: map[string]string{state.TagTarget: worker}, NextRunAtMs: first}
}

// A schedule is created once. Each report of its next run advances it once, and no report of another run or of a schedule
// that had its id before does. Its deletion frees the id.
func TestClientSchedule(t *testing.T) {
	w := newWorld(t, 1)
	w.now = 1000
	made := w.scheduled(everyMinute("s", 60_000))
	if made.Incarnation == 0 || made.CreatedAtMs != 1000 || made.NextRunAtMs != 60_000 || made.LastRunAtMs != 0 || string(made.PromiseParam.GetData()) != "in" {
		t.Fatalf("made %v", made)
	}
	w.now = 2000
	other := everyMinute("s", 90_000)
	other.Cron = "0 0 * * *"
	if again := w.scheduled(other); !proto.Equal(again, made) {
		t.Errorf("made again: %v, it was %v", again, made)
	}
	advance := func(incarnation uint64, ran, next int64) *perdurev1.AdvanceScheduleRequest {
		return &perdurev1.AdvanceScheduleRequest{Id: "s", Incarnation: incarnation, RanAtMs: ran, NextRunAtMs: next}
	}
	for _, late := range []*perdurev1.AdvanceScheduleRequest{advance(made.Incarnation+1, 60_000, 120_000), advance(made.Incarnation, 59_000, 120_000)} {
		if got := w.scheduled(late); !proto.Equal(got, made) {
			t.Errorf("%v has made %v", late, got)
		}
	}
	for range 2 { // the report is repeated
		if got := w.scheduled(advance(made.Incarnation, 60_000, 120_000)); got.LastRunAtMs != 60_000 || got.NextRunAtMs != 120_000 {
			t.Errorf("advanced: %v", got)
		}
	}
	for _, next := range []int64{120_000, 60_000, -1, state.Never + 1} {
		w.refused(scheduleCmd(advance(made.Incarnation, 120_000, next)), perdurev1.Reason_REASON_BAD_REQUEST)
	}
	if got := w.scheduled(&perdurev1.DeleteScheduleRequest{Id: "s"}); got.LastRunAtMs != 60_000 {
		t.Errorf("deleted %v", got)
	}
	w.refused(scheduleCmd(&perdurev1.DeleteScheduleRequest{Id: "s"}), perdurev1.Reason_REASON_PROMISE_NOT_FOUND)
	w.refused(scheduleCmd(advance(made.Incarnation, 120_000, 180_000)), perdurev1.Reason_REASON_PROMISE_NOT_FOUND)
	if n := rows(w.parts[0], keys.Schedule, keys.Deadline); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if next := w.scheduled(everyMinute("s", 60_000)); next.Incarnation <= made.Incarnation {
		t.Errorf("the next one with the id is %v", next)
	}
	if got := w.scheduled(advance(made.Incarnation, 60_000, 120_000)); got.LastRunAtMs != 0 {
		t.Errorf("a run of the former schedule has advanced %v", got)
	}
}

// What no schedule can have is refused, and nothing is stored.
func TestClientScheduleIsRefused(t *testing.T) {
	w := newWorld(t, 1)
	for what, change := range map[string]func(*perdurev1.CreateScheduleRequest){
		"no expression":           func(r *perdurev1.CreateScheduleRequest) { r.Cron = "" },
		"a long expression":       func(r *perdurev1.CreateScheduleRequest) { r.Cron = strings.Repeat("*", maxCron+1) },
		"no promise id":           func(r *perdurev1.CreateScheduleRequest) { r.PromiseId = "" },
		"a long promise id":       func(r *perdurev1.CreateScheduleRequest) { r.PromiseId = strings.Repeat("x", 10_000) },
		"a negative timeout":      func(r *perdurev1.CreateScheduleRequest) { r.PromiseTimeoutMs = -1 },
		"a timeout beyond times":  func(r *perdurev1.CreateScheduleRequest) { r.PromiseTimeoutMs = state.Never + 1 },
		"a first run at 0":        func(r *perdurev1.CreateScheduleRequest) { r.NextRunAtMs = 0 },
		"a first run never":       func(r *perdurev1.CreateScheduleRequest) { r.NextRunAtMs = state.Never + 1 },
		"a reserved tag":          func(r *perdurev1.CreateScheduleRequest) { r.PromiseTags["\x00client"] = "" },
		"a parameter of two ways": func(r *perdurev1.CreateScheduleRequest) { r.PromiseParam.Form = perdurev1.DataForm_DATA_FORM_EMPTY },
	} { //lint:sorted each is refused by itself
		req := everyMinute("s", 60_000)
		change(req)
		t.Log(what)
		w.refused(scheduleCmd(req), perdurev1.Reason_REASON_BAD_REQUEST)
	}
	w.refused(scheduleCmd(everyMinute("s:0", 60_000)), perdurev1.Reason_REASON_BAD_ID)
	if n := rows(w.parts[0], keys.Schedule); n != 0 {
		t.Errorf("%d schedules are stored", n)
	}
}
