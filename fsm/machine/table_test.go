package machine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// The kinds of commands, by their numbers in the log and with the feature levels that they came with, for good. A kind
// that the log may hold has a rule.
func TestCommandTable(t *testing.T) {
	type kind struct {
		name  protoreflect.Name
		level uint64
	}
	want := map[protoreflect.FieldNumber]kind{
		16: {"start", 1}, 17: {"commit", 1}, 18: {"release", 1}, 19: {"heartbeat", 1}, 20: {"signal", 1}, 21: {"cancel", 1},
		22: {"terminate", 1}, 23: {"create_promise", 1}, 24: {"settle_promise", 1}, 25: {"tick", 1}, 26: {"register_functions", 1},
		27: {"deliver", 1}, 28: {"trim", 1}, 29: {"assign", 1}, 30: {"submit_graph", 2}, 31: {"retry_graph", 2},
		40: {"inherit_leases", 3}, 41: {"raise_level", 4}, 42: {"restart", 6},
		60: {"enter_cut", 6}, 61: {"import", 6}, 62: {"import_done", 6}, 70: {"purge", 6}, 71: {"purge_many", 7}, 50: {"signal_entity", 6}, 51: {"call_entity", 6}, 52: {"commit_entity", 6},
		80: {"create_client_promise", 6}, 81: {"settle_client_promise", 6}, 82: {"register_callback", 6}, 83: {"register_listener", 6},
		84: {"create_client_task", 6}, 85: {"acquire_client_task", 6}, 86: {"release_client_task", 6}, 87: {"suspend_client_task", 6},
		88: {"fulfill_client_task", 6}, 89: {"fence_client_task", 6}, 90: {"heartbeat_client_tasks", 6}, 91: {"halt_client_task", 6},
		92: {"continue_client_task", 6}, 93: {"unblocks_delivered", 6}, 94: {"create_schedule", 6}, 95: {"delete_schedule", 6},
		96: {"advance_schedule", 6}, 100: {"import_history", 6},
	}
	fields := (&commandv1.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	if fields.Len() != len(want) {
		t.Errorf("the log has %d kinds, the table %d", fields.Len(), len(want))
	}
	for i := range fields.Len() {
		field := fields.Get(i)
		cmd := &commandv1.Command{}
		cmd.ProtoReflect().Set(field, cmd.ProtoReflect().NewField(field))
		level, known := LevelOf(cmd)
		if got := (kind{field.Name(), level}); !known || want[field.Number()] != got {
			t.Errorf("kind %d is %v, must be %v", field.Number(), got, want[field.Number()])
		}
		if level > state.FeatureLevel {
			t.Errorf("%s came with level %d, the newest is %d", field.Name(), level, state.FeatureLevel)
		}
		r, ok := ruleOf(cmd)
		if !ok || r.apply == nil {
			t.Errorf("no rule for %s", field.Name())
		}
		if r.stored != (field.Name() == "signal" || field.Name() == "retry_graph" || field.Name() == "create_promise" ||
			field.Number() >= 80 && field.Number() <= 95 && field.Number() != 90 && field.Number() != 93 || field.Name() == "restart" || field.Name() == "signal_entity" || field.Name() == "call_entity") {
			t.Errorf("%s: stored is %v", field.Name(), r.stored)
		}
		// An empty command of any kind is answered or refused, and is no end of the machine.
		w := newWorld(t, 1)
		w.one(cmd)
		// A command that names one object and is placed by another id is refused before it touches either.
		cmd.Namespace, cmd.Id = ns, "e"
		w.refused(cmd, perdurev1.Reason_REASON_BAD_REQUEST)
	}
	if _, ok := ruleOf(&commandv1.Command{}); ok {
		t.Error("a command of no kind has a rule")
	}
	if level, ok := LevelOf(raiseLevelCmd(9)); level != 9 || !ok {
		t.Errorf("a command that raises the level to 9 may be proposed from level %d on, %v", level, ok)
	}
}

// A command of an unknown kind stops the machine: it must not skip the command.
func TestUnknownCommandStops(t *testing.T) {
	newer := protowire.AppendTag(nil, 9000, protowire.BytesType)
	newer = protowire.AppendBytes(newer, nil)
	cmd := &commandv1.Command{}
	if err := proto.Unmarshal(newer, cmd); err != nil {
		t.Fatal(err)
	}
	stops(t, cmd, "unknown command kind")
}

// So does a message of an unknown kind.
func TestUnknownMessageStops(t *testing.T) {
	stops(t, &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{Source: 1 - state.PartitionOf(ns, "e", 2), Epoch: 1,
		Messages: []*commandv1.Message{{Seq: 1, Namespace: ns, ToId: "e"}}}}}, "unknown kind")
}

// stops applies a command that must stop the machine, after another that must not be kept.
func stops(t *testing.T, cmd *commandv1.Command, why string) {
	t.Helper()
	w := newWorld(t, 2)
	w.do(startCmd(w.request(), "e", "f", ""))
	p := w.at("e")
	m := p.m
	before := whole(p.state)
	_, err := m.Apply(9, &commandv1.Entry{TimeMs: 5000, Commands: []*commandv1.Command{startCmd(nil, "other", "f", ""), cmd, startCmd(nil, "third", "f", "")}})
	if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "index 9") {
		t.Fatalf("applied: %v", err)
	}
	if n := len(m.Writes()); n != 0 {
		t.Errorf("%d writes of an entry that was not applied", n)
	}
	if _, again := m.Apply(10, &commandv1.Entry{}); again == nil || again.Error() != err.Error() {
		t.Errorf("it goes on: %v", again)
	}
	if whole(p.state) != before {
		t.Error("the state has changed")
	}
}

// The wire's numbers are the rules' own, and each has one meaning.
func TestNumbers(t *testing.T) {
	for s := journal.StatusNone; s <= journal.StatusCancelled; s++ {
		name := status(wire.EncodeStatus(s))
		if !strings.EqualFold(name, s.String()) && s != journal.StatusNone {
			t.Errorf("status %v is %s on the wire", s, name)
		}
	}
	for s := recovery.TaskPending; s.Valid(); s++ {
		if name := strings.TrimPrefix(wire.EncodeTaskState(s).String(), "TASK_STATE_"); !strings.EqualFold(name, s.String()) {
			t.Errorf("task state %v is %s on the wire", s, name)
		}
	}
	for s := recovery.PromisePending; s.Valid(); s++ {
		wireState := perdurev1.PromiseState(s)
		if name := strings.TrimPrefix(wireState.String(), "PROMISE_STATE_"); !strings.EqualFold(name, s.String()) || wire.DecodePromiseState(wireState) != s {
			t.Errorf("promise state %v is %s on the wire", s, name)
		}
	}
	for k := journal.InvokeFunction; k.Valid(); k++ {
		if name := strings.TrimPrefix(perdurev1.InvokeKind(k).String(), "INVOKE_KIND_"); !strings.EqualFold(name, k.String()) {
			t.Errorf("kind of invocation %v is %s on the wire", k, name)
		}
	}
	for k, name := range map[journal.AwaitKind]string{journal.AwaitSingle: "SINGLE", journal.AwaitAny: "ANY", journal.AwaitAll: "ALL", journal.AwaitSignal: "SIGNAL", journal.AwaitJoinSet: "JOIN_SET"} {
		if got := strings.TrimPrefix(perdurev1.AwaitKind(k).String(), "AWAIT_KIND_"); got != name {
			t.Errorf("kind of wait %v is %s on the wire", k, got)
		}
	}
	for enum, n := range map[protoreflect.Enum]int{
		perdurev1.ExecutionStatus(0): 7, perdurev1.TaskState(0): 6, perdurev1.PromiseState(0): 6, perdurev1.InvokeKind(0): 6, perdurev1.AwaitKind(0): 6,
	} {
		if got := enum.Descriptor().Values().Len(); got != n {
			t.Errorf("%s has %d values, must have %d", enum.Descriptor().Name(), got, n)
		}
	}
	// Events have the numbers of their kinds.
	fields := (&perdurev1.Event{}).ProtoReflect().Descriptor().Oneofs().Get(0).Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if k := journal.Kind(f.Number()); k.String() != string(f.Message().Name()) {
			t.Errorf("event %d is %v in the journal, %s on the wire", f.Number(), k, f.Message().Name())
		}
	}
	if fields.Len() != 20 {
		t.Errorf("%d kinds of events", fields.Len())
	}
}

// Every event goes to the wire; those a worker may write come back as they were.
func TestEventsOnTheWire(t *testing.T) {
	val := recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte("v")})
	fail := recovery.AppendOutcome(nil, recovery.Outcome{Failure: &recovery.Failure{Type: "t", Message: "m", Details: []byte("d"), NonRetryable: true}})
	events := []journal.Event{
		journal.ExecutionStarted{ComponentDigest: "d", Input: []byte("i"), Parent: "p", IdempotencyKey: "k"},
		journal.ExecutionCompleted{Result: []byte("r")},
		journal.ExecutionFailed{Error: fail},
		journal.CancelRequested{Reason: "r"},
		journal.ExecutionCancelled{Reason: "r"},
		journal.InvokeScheduled{Promise: "e:0", Invoke: journal.InvokeStep, Function: "f", Input: []byte("i"), RetryPolicy: "attempts=2"},
		journal.InvokeStarted{Promise: "e:0", Attempt: 1},
		journal.InvokeCompleted{Promise: "e:0", Result: val, Attempt: 1},
		journal.InvokeRetrying{Promise: "e:0", FailedAttempt: 1, Error: fail, RetryAt: 5},
		journal.RandomGenerated{Promise: "e:1", Value: []byte{1}},
		journal.TimeRecorded{Promise: "e:2", Time: -7},
		journal.TimerScheduled{Promise: "e:3", Duration: 5, FireAt: 12},
		journal.TimerFired{Promise: "e:3"},
		journal.SignalDelivered{Name: "s", Payload: val, DeliveryID: 1},
		journal.SignalReceived{Promise: "e:4", Name: "s", Payload: val, DeliveryID: 1},
		journal.ExecutionAwaiting{On: []id.PromiseID{"e:0", "e:3"}, Wait: journal.AwaitAll},
		journal.ExecutionResumed{},
		journal.JoinSetCreated{Set: "e:5"},
		journal.JoinSetSubmitted{Set: "e:5", Promise: "e:0"},
		journal.JoinSetAwaited{Set: "e:5", Promise: "e:0", Result: fail},
	}
	servers := map[journal.Kind]bool{journal.KindExecutionStarted: true, journal.KindCancelRequested: true, journal.KindTimerFired: true,
		journal.KindSignalDelivered: true, journal.KindExecutionResumed: true}
	for i, ev := range events {
		if int(ev.Kind()) != i+1 {
			t.Fatalf("event %d is %v", i, ev.Kind())
		}
		w := wire.EncodeEntry(journal.Entry{Seq: 3, Time: 4, Event: ev})
		if w.Seq != 3 || w.TimeMs != 4 || !strings.HasPrefix(showEvent(w.Event), ev.Kind().String()) {
			t.Errorf("%v becomes %v", ev, w)
		}
		back, err := wire.DecodeEvent(w.Event)
		if servers[ev.Kind()] {
			if err == nil {
				t.Errorf("%v is taken from a worker", ev.Kind())
			}
			continue
		}
		if timer, ok := back.(journal.TimerScheduled); ok {
			timer.FireAt = 12 // the server's to say
			back = timer
		}
		if err != nil || fmt.Sprintf("%#v", back) != fmt.Sprintf("%#v", ev) {
			t.Errorf("%#v comes back as %#v, %v", ev, back, err)
		}
	}
	// Results that are no outcome, of whatever made them, are shown as they are.
	if got := wire.EncodeOutcome([]byte("\x07raw")); string(got.GetValue()) != "\x07raw" {
		t.Errorf("shown as %v", got)
	}
	if got := wire.EncodeFailure([]byte("\x00value")); got.Message != "\x00value" {
		t.Errorf("shown as %v", got)
	}
}

// A machine opens only what it knows and what is its own.
func TestOpen(t *testing.T) {
	for _, cfg := range []Config{{}, {Partition: 1, Partitions: 1}, {Partition: 3, Partitions: 2}} {
		if _, err := New(cfg, state.NewMemReader()); err == nil {
			t.Errorf("opened as %+v", cfg)
		}
	}
	cfg := Config{Partitions: 1}
	below := state.NewMemReader()
	below.Apply([]state.Write{{Key: keys.MetaKey(state.MetaFeature), Value: keys.AppendUint64(nil, state.FeatureLevel+1)}})
	if _, err := New(cfg, below); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("opened a newer state: %v", err)
	}
	for _, name := range []string{state.MetaApplied, state.MetaClock, state.MetaChecksum, state.MetaFeature, state.MetaEvicted, state.MetaReplies, state.MetaReplyBytes} {
		below := state.NewMemReader()
		below.Apply([]state.Write{{Key: keys.MetaKey(name), Value: []byte("short")}})
		var damage *state.CorruptError
		if _, err := New(cfg, below); !errors.As(err, &damage) || !strings.Contains(damage.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range [][]byte{{byte(keys.Ready), 'x'}, {byte(keys.Ready), 'x', 0, 1, 'y', 0, 7}} {
		below := state.NewMemReader()
		below.Apply([]state.Write{{Key: bad, Value: []byte{}}})
		var damage *state.CorruptError
		if _, err := New(cfg, below); !errors.As(err, &damage) {
			t.Errorf("%x: %v", bad, err)
		}
		if _, err := query.ReadyQueues(below); !errors.As(err, &damage) {
			t.Errorf("%x: %v", bad, err)
		}
	}
	for _, n := range []int{0, 1} {
		if m, err := New(Config{Partitions: 1, CachedExecutions: n, MaxReplies: uint64(n)}, state.NewMemReader()); err != nil || m.Applied() != 0 || m.cfg.CachedExecutions == 0 {
			t.Errorf("%v, %v", m, err)
		}
	}
}
