package rpc_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	perdurev1 "perdure/api/perdure/v1"
)

// babbler makes messages of random content, out of words that mean something to the node.
type babbler struct {
	*rand.Rand
	ids, names []string
	tokens     []*perdurev1.TaskToken
}

func pick[T any](b *babbler, from ...T) T { return from[b.IntN(len(from))] }

// fill fills a message: each field with some probability, with a value of its kind.
func (b *babbler) fill(m protoreflect.Message, depth int) {
	if token, ok := m.Interface().(*perdurev1.TaskToken); ok && len(b.tokens) > 0 && b.IntN(8) > 0 {
		proto.Merge(token, pick(b, b.tokens...))
		return
	}
	fields := m.Descriptor().Fields()
	chosen := map[protoreflect.OneofDescriptor]protoreflect.FieldDescriptor{}
	for i := range m.Descriptor().Oneofs().Len() {
		one := m.Descriptor().Oneofs().Get(i)
		if b.IntN(60) > 0 {
			chosen[one] = one.Fields().Get(b.IntN(one.Fields().Len()))
		}
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		switch one := f.ContainingOneof(); {
		case one != nil && chosen[one] != f, one == nil && b.IntN(3) == 0, depth == 0 && f.Message() != nil && one == nil:
			continue
		}
		switch {
		case f.IsMap():
			for range b.IntN(3) {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(pick(b, b.names...)).MapKey(), protoreflect.ValueOfString(pick(b, b.names...)))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range b.IntN(4) {
				if f.Message() != nil {
					e := list.NewElement()
					b.fill(e.Message(), depth-1)
					list.Append(e)
					continue
				}
				list.Append(b.value(f))
			}
		case f.Message() != nil:
			b.fill(m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, b.value(f))
		}
	}
}

func (b *babbler) value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(b.IntN(2) == 0)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		if b.IntN(10) == 0 {
			return protoreflect.ValueOfEnum(pick[protoreflect.EnumNumber](b, -1, 99, math.MaxInt32, 257))
		}
		return protoreflect.ValueOfEnum(values.Get(b.IntN(values.Len())).Number())
	case protoreflect.StringKind:
		switch f.Name() {
		case "id", "promise_id", "join_set_id", "parent_id", "waiting_on":
			return protoreflect.ValueOfString(pick(b, b.ids...))
		case "namespace":
			return protoreflect.ValueOfString("")
		case "retry_policy":
			return protoreflect.ValueOfString(pick(b, "attempts=1", "attempts=2", "", "attempts=x"))
		}
		if b.IntN(60) == 0 {
			return protoreflect.ValueOfString(pick(b, "", "\x00", long(300)))
		}
		return protoreflect.ValueOfString(pick(b, b.names...))
	case protoreflect.BytesKind:
		if f.Parent().Name() == "RequestID" {
			return protoreflect.ValueOfBytes(fmt.Appendf(nil, "random-%09d", b.IntN(500)))
		}
		return protoreflect.ValueOfBytes(pick(b, nil, []byte("x"), big(8), big(1000)))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(pick[uint32](b, 0, 0, 1, 1, 2, 3, math.MaxUint32))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(pick[int32](b, 0, 1, -1, math.MaxInt32))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(pick[uint64](b, 0, 1, 1, 2, 3, 10, math.MaxUint64))
	default:
		if b.IntN(40) == 0 {
			return protoreflect.ValueOfInt64(pick[int64](b, -1, math.MaxInt64, math.MinInt64))
		}
		return protoreflect.ValueOfInt64(pick[int64](b, 0, 1, 5, 20, 1000, 60_000))
	}
}

// TestRandomRequests has a worker and a client send valid requests in a random order. The node checks every
// result by its invariants, and halts on a breach.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	requests := 6000
	if testing.Short() {
		requests = 1500
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	n := startNode(t, nil)
	w := connect(t, n)
	w.ns = "default"
	b := &babbler{Rand: rand.New(rand.NewPCG(seed, 1)), names: []string{"f", "g", "s"}}
	hello := &perdurev1.Hello{WorkerId: "babbler", Functions: []string{"f", "g"}, Capacity: 4, LeaseMs: 2000}
	s := w.hello(hello)
	nextChild := map[string]uint32{}
	known := map[string]uint64{}
	applied, refusals, started := 0, map[perdurev1.Reason]int{}, 0
	for i := range requests {
		if i%60 == 0 {
			started++
			id := fmt.Sprint("e", started)
			w.start(id, pick(b, "f", "g"))
			b.ids = []string{"e", "", "p"}
			for back := range 4 {
				id := fmt.Sprint("e", max(1, started-back))
				b.ids = append(b.ids, id, id+":0", id+":0", id+":1", id+":1", id+":2", id+":3", id+":0.0", id+":0.1")
			}
			_ = s.raw.Send(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Credit{Credit: &perdurev1.Credit{Tasks: 2}}}) // a broken stream is seen below
		}
		for more := true; more; {
			select {
			case task := <-s.tasks:
				b.tasks(task)
				known[task.Token.Id] = task.NextSeq
			default:
				more = false
			}
		}
		if b.IntN(6) == 0 {
			b.call(w)
			continue
		}
		m := &perdurev1.WorkRequest{}
		b.fill(m.ProtoReflect(), 6)
		commit := m.GetCommit()
		if b.IntN(3) > 0 || m.GetHello() != nil || m.GetCredit() != nil || m.GetRevokeCredit() != nil { // mostly commits, and mostly such as can be right
			commit = &perdurev1.Commit{}
			b.fill(commit.ProtoReflect(), 6)
			m = &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Commit{Commit: commit}}
		}
		if commit != nil {
			commit.NextChild = nextChild[commit.GetTask().GetId()]
			commit.KnownSeq = known[commit.GetTask().GetId()]
			own := commit.GetTask().GetId()
			for _, ev := range commit.Events {
				b.aim(ev, own, &commit.NextChild)
			}
			b.complete(commit)
			commit.NextChild = nextChild[own]
		}
		select {
		case answer := <-s.ask(m):
			if e := answer.GetError(); e != nil {
				refusals[e.Reason]++
				if e.Reason == perdurev1.Reason_REASON_CORRUPT || e.Reason == perdurev1.Reason_REASON_OUTCOME_UNKNOWN || e.Reason == perdurev1.Reason_REASON_UNSPECIFIED {
					t.Fatalf("%v was answered %v", m, e)
				}
			}
			if c := answer.GetCommit(); c != nil {
				applied++
				nextChild[commit.Task.Id], known[commit.Task.Id] = c.NextChild, c.NextSeq
				if c.State != perdurev1.TaskState_TASK_STATE_ACQUIRED {
					b.forget(commit.Task)
				}
			}
		case err := <-s.ended:
			t.Fatalf("the stream ended after %v: %v", m, err)
		case <-time.After(testTimeout):
			t.Fatalf("no answer to %v", m)
		}
	}
	if err := n.NotReady(); err != nil {
		t.Errorf("the node is not ready: %v", err)
	}
	if applied < requests/100 {
		t.Errorf("only %d of %d commits were applied: this tests little", applied, requests)
	}
	t.Logf("%d executions, %d commits applied, refused: %v", started, applied, refusals)
	for i := range started {
		w.describe(fmt.Sprint("e", i+1))
	}
}

// tasks adds a task to those the babbler holds.
func (b *babbler) tasks(task *perdurev1.Task) {
	b.tokens = append(b.tokens, task.Token)
	if len(b.tokens) > 6 {
		b.tokens = b.tokens[1:]
	}
}

func (b *babbler) forget(token *perdurev1.TaskToken) {
	for i, held := range b.tokens {
		if proto.Equal(held, token) {
			b.tokens = append(b.tokens[:i], b.tokens[i+1:]...)
			return
		}
	}
}

// aim points an event's id at an operation that the execution has, or at its next one.
func (b *babbler) aim(ev *perdurev1.Event, own string, next *uint32) {
	if b.IntN(10) == 0 {
		return
	}
	take := func() string {
		*next++
		return fmt.Sprintf("%s:%d", own, *next-1)
	}
	have := func() string { return fmt.Sprintf("%s:%d", own, b.IntN(int(*next)+1)) }
	switch k := ev.Kind.(type) {
	case *perdurev1.Event_InvokeScheduled:
		k.InvokeScheduled.PromiseId = take()
		k.InvokeScheduled.FunctionName = pick(b, "f", "g")
	case *perdurev1.Event_InvokeStarted:
		k.InvokeStarted.PromiseId, k.InvokeStarted.Attempt = have(), pick[uint32](b, 1, 1, 2)
	case *perdurev1.Event_InvokeCompleted:
		k.InvokeCompleted.PromiseId, k.InvokeCompleted.Attempt = have(), pick[uint32](b, 1, 1, 2)
	case *perdurev1.Event_InvokeRetrying:
		k.InvokeRetrying.PromiseId, k.InvokeRetrying.FailedAttempt = have(), pick[uint32](b, 1, 1, 2)
	case *perdurev1.Event_RandomGenerated:
		k.RandomGenerated.PromiseId = take()
	case *perdurev1.Event_TimeRecorded:
		k.TimeRecorded.PromiseId = take()
	case *perdurev1.Event_TimerScheduled:
		k.TimerScheduled.PromiseId, k.TimerScheduled.DurationMs = take(), pick[int64](b, 0, 1, 20, 1000, math.MaxInt64)
	case *perdurev1.Event_JoinSetCreated:
		k.JoinSetCreated.JoinSetId = take()
	case *perdurev1.Event_JoinSetSubmitted:
		k.JoinSetSubmitted.JoinSetId, k.JoinSetSubmitted.PromiseId = have(), have()
	case *perdurev1.Event_JoinSetAwaited:
		k.JoinSetAwaited.JoinSetId, k.JoinSetAwaited.PromiseId = have(), have()
	case *perdurev1.Event_ExecutionAwaiting:
		k.ExecutionAwaiting.WaitingOn = []string{have()}
		if k.ExecutionAwaiting.Kind == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
			k.ExecutionAwaiting.WaitingOn, k.ExecutionAwaiting.SignalName = []string{take()}, pick(b, "s", "f")
		}
	}
}

// complete gives one-way operations and children of a commit what they need, mostly.
func (b *babbler) complete(c *perdurev1.Commit) {
	var sends []*perdurev1.Send
	for _, ev := range c.Events {
		switch e := ev.GetInvokeScheduled(); e.GetKind() {
		case perdurev1.InvokeKind_INVOKE_KIND_SEND:
			m := &perdurev1.Send{}
			b.fill(m.ProtoReflect(), 3)
			m.PromiseId = e.PromiseId
			if m.GetStart() != nil {
				m.GetStart().Id = fmt.Sprint("sent", b.IntN(50))
			}
			sends = append(sends, m)
		case perdurev1.InvokeKind_INVOKE_KIND_FUNCTION:
			if len(c.Children) > 0 {
				c.Children[0].PromiseId = e.PromiseId
			}
		}
	}
	if b.IntN(10) > 0 {
		c.Sends = sends
	}
}

// call makes one call of a client. Its answer does not matter, as long as there is one.
func (b *babbler) call(w *world) {
	w.t.Helper()
	ctx := soon(w.t)
	fill := func(m proto.Message) { b.fill(m.ProtoReflect(), 4) }
	var err error
	switch b.IntN(13) {
	case 0:
		r := &perdurev1.SignalRequest{}
		fill(r)
		_, err = w.executions.Signal(ctx, r)
	case 1:
		r := &perdurev1.CancelRequest{}
		fill(r)
		_, err = w.executions.Cancel(ctx, r)
	case 2:
		if b.IntN(4) == 0 {
			r := &perdurev1.TerminateRequest{}
			fill(r)
			_, err = w.executions.Terminate(ctx, r)
		}
	case 3:
		r := &perdurev1.StartRequest{}
		fill(r)
		r.WaitMs = min(r.WaitMs, 1)
		_, err = w.executions.Start(ctx, r)
	case 4:
		r := &perdurev1.CreatePromiseRequest{}
		fill(r)
		_, err = w.promises.Create(ctx, r)
	case 5:
		r := &perdurev1.SettlePromiseRequest{}
		fill(r)
		_, err = w.promises.Settle(ctx, r)
	case 6:
		r := &perdurev1.ListRequest{}
		fill(r)
		_, err = w.executions.List(ctx, r)
	case 7:
		r := &perdurev1.JournalRequest{}
		fill(r)
		_, err = w.executions.Journal(ctx, r)
	case 8:
		r := &perdurev1.DescribeRequest{}
		fill(r)
		_, err = w.executions.Describe(ctx, r)
	case 9:
		r := &perdurev1.SubmitGraphRequest{}
		fill(r)
		if b.IntN(2) == 0 {
			r.Graph = &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{waitsFor("first", pick(b, b.names...)), waitsFor("second", "s", "first"),
				{Id: "third", Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}}}}
		}
		_, err = w.graphs().Submit(ctx, r)
	case 10:
		r := &perdurev1.RetryGraphRequest{}
		fill(r)
		_, err = w.graphs().Retry(ctx, r)
	case 11:
		r := &perdurev1.GraphStatusRequest{}
		fill(r)
		r.WaitMs = min(r.WaitMs, 1)
		_, err = w.graphs().GetStatus(ctx, r)
		if err == nil {
			_, err = w.graphs().GetOutcome(ctx, &perdurev1.NodeOutcomeRequest{Namespace: r.Namespace, Id: r.Id, Node: pick(b, "first", "second", "third")})
		}
	default:
		r := &perdurev1.GetPromiseRequest{}
		fill(r)
		_, err = w.promises.Get(ctx, r)
	}
	if err != nil {
		if e, ok := fromStatus(err); !ok || e == perdurev1.Reason_REASON_CORRUPT || e == perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
			w.t.Fatalf("a call was answered %v", err)
		}
	}
}
