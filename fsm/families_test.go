package fsm

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// paired is the first of two partitions: some of what its executions send leaves it.
var paired = machine.Config{Partition: 0, Partitions: 2, CheckInvariants: true}

// idOf is an id that begins with name and belongs to one of the two partitions.
func idOf(partition uint32, name string) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint(name, n); state.PartitionOf(ns, id, paired.Partitions) == partition {
			return id
		}
	}
}

// A pairedStore is a store of the first of two partitions with its log.
type pairedStore struct {
	*Store
	t     *testing.T
	index uint64
}

func openPaired(t *testing.T, fs vfs.FS) *pairedStore {
	t.Helper()
	w := newWatcher()
	opts := w.options(fs, true)
	opts.Machine = paired
	s, err := Open("state", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if errs := w.said(); len(errs) > 0 {
			t.Errorf("the store halted: %v", errs)
		}
	})
	return &pairedStore{Store: s, t: t}
}

// entry applies one entry at a time, with the next index.
func (s *pairedStore) entry(now int64, grant *commandv1.Grant, cmds ...*commandv1.Command) *machine.Result {
	s.t.Helper()
	e := &commandv1.Entry{TimeMs: now, Commands: cmds}
	if grant != nil {
		e.Grants = []*commandv1.Grant{grant}
	}
	b, err := EncodeEntry(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.index++
	response := s.Apply(&raft.Log{Index: s.index, Term: 1, Type: raft.LogCommand, Data: b})
	clear(b) // nothing may refer to an applied entry's bytes
	switch res := response.(type) {
	case *machine.Result:
		return res
	case error:
		s.t.Fatalf("entry %d: %v", s.index, res)
	default:
		s.t.Fatalf("entry %d was not applied: the store has applied that index already", s.index)
	}
	return nil
}

// accepted applies commands of which none may be refused.
func (s *pairedStore) accepted(now int64, grant *commandv1.Grant, cmds ...*commandv1.Command) *machine.Result {
	s.t.Helper()
	res := s.entry(now, grant, cmds...)
	for i, reply := range res.Replies {
		if refused := wire.ReplyError(reply); refused != nil {
			s.t.Fatalf("%v: %v", cmds[i], refused)
		}
	}
	return res
}

// byFamily is the state, key by key, but for what only the store itself keeps in it.
func (s *pairedStore) byFamily() map[keys.Family]map[string]string {
	s.t.Helper()
	out := map[keys.Family]map[string]string{}
	if err := s.View(func(r state.Reader) error {
		for k, v := range contentOf(r) {
			f := keys.Family(k[0])
			if out[f] == nil {
				out[f] = map[string]string{}
			}
			out[f][k] = v
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *pairedStore) outgoing() string {
	s.t.Helper()
	var out string
	if err := s.View(func(r state.Reader) error {
		epoch, msgs, err := query.Outgoing(r, 1, state.Channel{}, 100, 1<<30)
		out = fmt.Sprint(epoch)
		for _, m := range msgs {
			out += fmt.Sprintf(" %d:%s", m.Seq, m.ToId)
		}
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return out
}

func request(name string) *perdurev1.RequestID { return &perdurev1.RequestID{Id: []byte(name)} }

func signal(req, id, payload string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Request: request(req), Kind: &commandv1.Command_Signal{
		Signal: &perdurev1.SignalRequest{Id: id, Name: "go", Payload: []byte(payload)}}}
}

func fromPartition1(seq uint64, to string) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{Source: 1, Epoch: 1, Messages: []*commandv1.Message{{
		Seq: seq, Namespace: ns, ToId: to, Kind: &commandv1.Message_Signal{Signal: &perdurev1.SignalSend{Id: to, Name: "hail", Payload: []byte("x")}}}}}}}
}

func tick() *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{Limit: 100}}}
}

// everyFamily gives a store a state with something in every family of keys. It returns the execution that has
// sent a message to the other partition and received one from it.
func (s *pairedStore) everyFamily() (parent string) {
	s.t.Helper()
	parent = idOf(0, "parent")
	account := idOf(0, "account@")
	s.accepted(900, nil, &commandv1.Command{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: state.FeatureLevel}}})
	start := func(id, function string) *commandv1.Command {
		return &commandv1.Command{Namespace: ns, Id: id, Request: request("start " + id), Kind: &commandv1.Command_Start{
			Start: &perdurev1.StartRequest{Id: id, Function: function, Input: []byte("in"), TimeoutMs: 60_000}}}
	}
	res := s.accepted(1000, &commandv1.Grant{Worker: "w", Namespace: ns, Functions: []string{"f"}, Credit: 1, LeaseMs: 5000},
		&commandv1.Command{Namespace: ns, Kind: &commandv1.Command_RegisterFunctions{
			RegisterFunctions: &commandv1.RegisterFunctions{Functions: []string{"f", "g", "@account"}}}},
		start(parent, "f"))
	if len(res.Effects.Assigned) != 1 {
		s.t.Fatalf("%d tasks were assigned", len(res.Effects.Assigned))
	}
	// A step that runs reports its progress.
	beat := s.accepted(1000, &commandv1.Grant{Worker: "w", Namespace: ns, Functions: []string{"f"}, Credit: 1, LeaseMs: 60_000}, start(idOf(0, "long"), "f"))
	token := beat.Effects.Assigned[0].Token
	s.accepted(1000, nil, &commandv1.Command{Kind: &commandv1.Command_Heartbeat{Heartbeat: &commandv1.Heartbeat{Worker: "w",
		Tasks: []*perdurev1.TaskToken{token}, Steps: []*perdurev1.StepHeartbeat{{PromiseId: token.Id + ":0", Name: "copy", Details: []byte("half")}}}}})
	// The code of a worker does not fit the journal of an execution.
	misfit := s.accepted(1000, &commandv1.Grant{Worker: "w", Namespace: ns, Functions: []string{"h"}, Credit: 1, LeaseMs: 5000},
		&commandv1.Command{Namespace: ns, Kind: &commandv1.Command_RegisterFunctions{RegisterFunctions: &commandv1.RegisterFunctions{Functions: []string{"h"}}}},
		start(idOf(0, "misfit"), "h"))
	s.accepted(1000, nil, &commandv1.Command{Namespace: ns, Id: idOf(0, "misfit"), Kind: &commandv1.Command_Release{
		Release: &perdurev1.Release{Task: misfit.Effects.Assigned[0].Token, Problem: "another step", CodeMismatch: true, Code: "v1"}}})
	invoke := func(promise string, kind perdurev1.InvokeKind, function string) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: promise, Kind: kind, FunctionName: function, Input: []byte("hello")}}}
	}
	// It calls a child (a task in a queue), signals an execution of the other partition, locks an
	// entity, and waits. A client signals the entity.
	s.accepted(1001, nil, &commandv1.Command{Namespace: ns, Id: parent, Request: request("commit"), Kind: &commandv1.Command_Commit{
		Commit: &perdurev1.Commit{Task: res.Effects.Assigned[0].Token, KnownSeq: 1,
			Events: []*perdurev1.Event{
				invoke(parent+":0", perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, "g"),
				invoke(parent+":1", perdurev1.InvokeKind_INVOKE_KIND_SEND, "signal"),
				invoke(parent+":2", perdurev1.InvokeKind_INVOKE_KIND_SEND, "lock"),
				{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{
					Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE, WaitingOn: []string{parent + ":0"}}}},
			},
			Sends: []*perdurev1.Send{{PromiseId: parent + ":1", What: &perdurev1.Send_Signal{
				Signal: &perdurev1.SignalSend{Id: idOf(1, "far"), Name: "go", Payload: []byte("hello")}}},
				{PromiseId: parent + ":2", What: &perdurev1.Send_EntityLocks{EntityLocks: &perdurev1.EntityLocks{Ids: []string{account}}}}},
		}}},
		&commandv1.Command{Namespace: ns, Id: account, Request: request("to the entity"), Kind: &commandv1.Command_SignalEntity{
			SignalEntity: &perdurev1.SignalEntityRequest{Id: account, Operation: "add", Input: []byte("1")}}})
	// The rows of a long execution are being deleted.
	long := idOf(0, "purged")
	held := s.accepted(1001, &commandv1.Grant{Worker: "w", Namespace: ns, Functions: []string{"f"}, Credit: 1, LeaseMs: 5000}, start(long, "f"))
	var events []*perdurev1.Event
	for n := range 300 {
		step := fmt.Sprintf("%s:%d", long, n)
		events = append(events, invoke(step, perdurev1.InvokeKind_INVOKE_KIND_STEP, "s"),
			&perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: step, Attempt: 1}}}, &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{
				InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: step, Attempt: 1, Result: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{}}}}})
	}
	events = append(events, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{}}})
	s.accepted(1001, nil, &commandv1.Command{Namespace: ns, Id: long, Request: request("long"), Kind: &commandv1.Command_Commit{
		Commit: &perdurev1.Commit{Task: held.Effects.Assigned[0].Token, KnownSeq: 1, Events: events}}},
		&commandv1.Command{Namespace: ns, Id: long, Kind: &commandv1.Command_Purge{Purge: &perdurev1.PurgeRequest{Id: long, Force: true}}})
	// A graph run with a node that waits for a signal, after one was sent to it.
	run := idOf(0, "run")
	s.accepted(1002, nil,
		&commandv1.Command{Namespace: ns, Id: run, Request: request("run"), Kind: &commandv1.Command_SubmitGraph{SubmitGraph: &perdurev1.SubmitGraphRequest{
			Id: run, Input: []byte("{}"), AllowUnknownFunctions: true, Graph: &perdurev1.Graph{Name: "g", Nodes: []*perdurev1.GraphNode{
				{Id: "a", Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}},
				{Id: "b", After: []string{"a"}, Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "go"}}},
			}}}}},
		signal("to the run", run, "{}"),
		fromPartition1(1, parent))
	// A client's schedule.
	daily := idOf(0, "daily")
	s.accepted(1003, nil, &commandv1.Command{Namespace: ns, Id: daily, Request: request("daily"), Kind: &commandv1.Command_CreateSchedule{
		CreateSchedule: &perdurev1.CreateScheduleRequest{Id: daily, Cron: "0 0 * * *", PromiseId: "{{.id}}", PromiseTimeoutMs: 1000, NextRunAtMs: 86_400_000}}})
	// Only a crowd of listeners leaves some to notify.
	for key, value := range map[string][]byte{
		string(keys.Of(keys.Listener, ns, idOf(0, "promise"), "poll://somewhere")): {},
		string(keys.Of(keys.Notify, ns, idOf(0, "promise"))):                       state.Notification{AtMS: 5, From: "poll://somewhere"}.Encode(),
		// Only clients' tasks have callbacks with rows.
		string(keys.Of(keys.Callback, ns, idOf(0, "promise"), idOf(0, "awaiter"))):  {},
		string(keys.Of(keys.AwaitedBy, ns, idOf(0, "awaiter"), idOf(0, "promise"))): {},
		// An unblock that was not delivered.
		string(keys.Of(keys.Unblock, ns, "poll://somewhere", idOf(0, "settled"))):                                     keys.AppendUint64(nil, 5),
		string(keys.DeadlineOf(keys.DeadlineUnblock, 5, ns, state.UnblockID(idOf(0, "settled"), "poll://somewhere"))): {},
	} {
		if err := s.db.Set([]byte(key), value, pebble.NoSync); err != nil {
			s.t.Fatal(err)
		}
	}
	return parent
}

// A snapshot's content has every family of keys, each key of it, and nothing of what the receiver had before. The
// receiver answers everything that comes as the sender does.
func TestContentHoldsEveryFamily(t *testing.T) {
	source := openPaired(t, vfs.NewMem())
	parent := source.everyFamily()
	want := source.byFamily()
	for _, row := range keys.Table() {
		if len(want[row.Family]) == 0 {
			t.Fatalf("nothing of family %s is in the state: this test says nothing of it", row.Name)
		}
	}
	for name, had := range map[string]func(*pairedStore){
		"an empty store": func(*pairedStore) {},
		"a store with another state": func(s *pairedStore) {
			other := idOf(0, "other")
			s.accepted(900, nil, &commandv1.Command{Namespace: ns, Id: other, Request: request("other"), Kind: &commandv1.Command_Start{
				Start: &perdurev1.StartRequest{Id: other, Function: "h", AllowUnknownFunction: true, TimeoutMs: 60_000}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			receiver := openPaired(t, vfs.NewMem())
			had(receiver)
			if err := receiver.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := receiver.Restore(io.NopCloser(bytes.NewReader(contentOfStore(t, source.Store)))); err != nil {
				t.Fatal(err)
			}
			have := receiver.byFamily()
			for _, row := range keys.Table() {
				for k, v := range want[row.Family] {
					if h, ok := have[row.Family][k]; !ok || h != v {
						t.Errorf("family %s: key %q is %q (there: %v), it was sent as %q", row.Name, k, h, ok, v)
					}
				}
				for k := range have[row.Family] {
					if _, ok := want[row.Family][k]; !ok {
						t.Errorf("family %s: key %q was not sent", row.Name, k)
					}
				}
			}
		})
	}

	// All later commands are applied to both. Each needs a family: the numbers of what is sent, and received,
	// the stored reply, the queue of ready tasks, the deadlines.
	receiver := openPaired(t, vfs.NewMem())
	if err := receiver.Restore(io.NopCloser(bytes.NewReader(contentOfStore(t, source.Store)))); err != nil {
		t.Fatal(err)
	}
	receiver.index = source.index
	if a, b := source.outgoing(), receiver.outgoing(); a != b || a == "0" {
		t.Errorf("the outbox holds %s, it was sent as %s", b, a)
	}
	grant := &commandv1.Grant{Worker: "v", Namespace: ns, Functions: []string{"f", "g"}, Credit: 9, LeaseMs: 1000}
	for i, step := range []struct {
		now   int64
		grant *commandv1.Grant
		cmds  []*commandv1.Command
	}{
		{1003, nil, []*commandv1.Command{fromPartition1(1, parent), fromPartition1(2, parent)}},
		{1004, nil, []*commandv1.Command{signal("to the run", idOf(0, "run"), "{}")}},
		{1005, grant, []*commandv1.Command{tick()}},
		{200_000, nil, []*commandv1.Command{tick()}},
	} {
		a, b := source.entry(step.now, step.grant, step.cmds...), receiver.entry(step.now, step.grant, step.cmds...)
		if !slices.EqualFunc(a.Replies, b.Replies, func(x, y *commandv1.Reply) bool { return proto.Equal(x, y) }) {
			t.Errorf("step %d is answered with %v, by the sender with %v", i, b.Replies, a.Replies)
		}
		for _, r := range []*machine.Result{a, b} { // what a leader has in memory besides the state
			for i := range r.Effects.Assigned {
				r.Effects.Assigned[i].First = nil
			}
		}
		if fmt.Sprint(a.Effects.Assigned, a.Effects.Settled, a.Effects.Expired) != fmt.Sprint(b.Effects.Assigned, b.Effects.Settled, b.Effects.Expired) {
			t.Errorf("step %d has the effects %+v, at the sender %+v", i, b.Effects, a.Effects)
		}
	}
	if a, b := source.Present(), receiver.Present(); a != b {
		t.Errorf("in the end the receiver is at %+v, the sender at %+v", b, a)
	}
}
