package machine

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

var clientOps = flag.Int("client.ops", 20_000, "the operations of TestClientsAgainstReference")

// Random operations of clients, each on the machine and on the rules over a store in memory: equal answers, equal
// messages, equal states. The whole state is audited, and both sides keep the invariants.
func TestClientsAgainstReference(t *testing.T) {
	const batch = 200
	done := map[string]int{}
	for n := 0; n < *clientOps; n += batch {
		r := newClientRun(t, uint64(n))
		for i := range min(batch, *clientOps-n) {
			r.step(fmt.Sprintf("seed %d, operation %d", n, i))
		}
		r.end()
		for what, n := range r.done {
			done[what] += n
		}
	}
	// What the operations must have come to, or the test says nothing of it.
	for _, what := range []string{"acquired", "suspended", "resumed", "ready", "fulfilled", "fenced", "extended", "halted", "continued", "backed off", "waiting", "unblocked", "repeated"} {
		if done[what] < max(1, *clientOps/20_000) {
			t.Errorf("%s %d times in %d operations", what, done[what], *clientOps)
		}
	}
	t.Log(done)
}

// reference is the protocol over recovery.MemStore. It settles what has expired in the protocol's order: all promises, then
// who waits for them, then leases, then retries.
type reference struct {
	*recovery.MemStore
	now   int64
	retry int64
	// announced is the retry time of each task at its last execute, unblocks until when each waits.
	announced map[string]int64
	unblocks  map[[2]string]int64
	messages  []string
}

func (m *reference) tell(fx recovery.Effects) {
	for _, e := range fx.Executes {
		task, _ := m.Task(e.ID)
		m.announced[e.ID] = task.RetryAt
		m.messages = append(m.messages, fmt.Sprintf("execute %s v%d at %s", e.ID, e.Version, e.Target))
	}
	for _, u := range fx.Unblocks {
		m.unblocks[[2]string{u.Promise.ID, u.Address}] = m.now + state.MaxUnblockAgeMS
		m.messages = append(m.messages, fmt.Sprintf("unblock %s %s at %s", u.Promise.ID, u.Promise.State, u.Address))
	}
}

func (m *reference) chain(st recovery.Settlement) { m.tell(recovery.Propagate(m, m.now, st, m.retry)) }

func (m *reference) sweep() {
	promises, _ := m.Expired(m.now)
	var settled []recovery.Settlement
	for _, objectID := range promises {
		settled = append(settled, recovery.TimeoutPromise(m, m.now, recovery.Ref{ID: objectID}))
	}
	for _, st := range settled {
		m.chain(st)
	}
	_, tasks := m.Expired(m.now)
	for _, objectID := range tasks {
		_, fx := recovery.ExpireLease(m, m.now, recovery.Ref{ID: objectID}, m.retry)
		m.tell(fx)
	}
	for _, objectID := range tasks {
		_, fx := recovery.ExpireRetry(m, m.now, recovery.Ref{ID: objectID}, m.retry)
		m.tell(fx)
	}
	maps.DeleteFunc(m.unblocks, func(_ [2]string, until int64) bool { return until <= m.now })
}

// touch settles what has expired of one object.
func (m *reference) touch(objectID string) {
	m.chain(recovery.TimeoutPromise(m, m.now, recovery.Ref{ID: objectID}))
	_, fx := recovery.ExpireLease(m, m.now, recovery.Ref{ID: objectID}, m.retry)
	m.tell(fx)
}

func (m *reference) snapshot() string {
	var b strings.Builder
	for p := range m.Promises() {
		fmt.Fprintln(&b, "promise", showReference(p))
	}
	for t := range m.Tasks() {
		fmt.Fprintln(&b, "task", showReferenceTask(t))
	}
	for x, y := range m.AllCallbacks() {
		fmt.Fprintln(&b, "callback", x, y)
	}
	for x, y := range m.AllAwaitedBy() {
		fmt.Fprintln(&b, "awaited-by", x, y)
	}
	for x, y := range m.AllListeners() {
		fmt.Fprintln(&b, "listener", x, y)
	}
	for x, at := range m.PromiseTimers() {
		fmt.Fprintln(&b, "timer", x, at)
	}
	for t := range m.TaskTimers() {
		fmt.Fprintln(&b, "task timer", t.ID, t.Kind, t.At)
	}
	for _, objectID := range slices.Sorted(maps.Keys(m.announced)) {
		if t, _ := m.Task(objectID); t.State == recovery.TaskPending && t.RetryAt == m.announced[objectID] {
			fmt.Fprintln(&b, "announced", objectID, t.Target)
		}
	}
	for u, until := range m.unblocks {
		fmt.Fprintln(&b, "unblock", u[0], u[1], until)
	}
	return sortedLines(b.String())
}

func showReference(p recovery.Promise) string {
	return fmt.Sprintf("%s i%d %s param=%q value=%x tags=%v target=%q timer=%t external=%t timeout=%d created=%d settled=%d delay=%d",
		p.ID, p.Incarnation, p.State, p.Param, p.Value, p.Tags, p.Target, p.Timer, p.External, p.TimeoutAt, p.CreatedAt, p.SettledAt, p.DelayUntil)
}

func showReferenceTask(t recovery.Task) string {
	return fmt.Sprintf("%s i%d %s v%d pid=%s ttl=%d lease=%d retry=%d resumes=%v target=%q releases=%d/%d",
		t.ID, t.Incarnation, t.State, t.Version, t.PID, t.TTL, t.LeaseAt, t.RetryAt, t.Resumes, t.Target, t.Releases, t.ReleasedAt)
}

func sortedLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// snapshotOf shows a state as the reference shows its own.
func snapshotOf(t *testing.T, r state.Reader) string {
	var b strings.Builder
	each := func(f keys.Family, fn func(key, value []byte)) {
		if err := r.Scan([]byte{byte(f)}, []byte{byte(f) + 1}, func(key, value []byte) bool { fn(key, value); return true }); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(key []byte) (parts []string) {
		for rest := key[1:]; len(rest) > 0; {
			var part string
			var err error
			if part, rest, err = keys.CutString(rest); err != nil {
				t.Fatalf("key %x: %v", key, err)
			}
			parts = append(parts, part)
		}
		return parts
	}
	each(keys.Promise, func(_, value []byte) {
		p, err := recovery.DecodePromise(value)
		if err != nil {
			t.Fatal(err)
		}
		p.Tags, p.Target = state.UserTags(p.Tags), strings.TrimPrefix(p.Target, "\x00")
		fmt.Fprintln(&b, "promise", showReference(p))
	})
	each(keys.Task, func(_, value []byte) {
		task, err := recovery.DecodeTask(value)
		if err != nil {
			t.Fatal(err)
		}
		task.Target = strings.TrimPrefix(task.Target, "\x00")
		fmt.Fprintln(&b, "task", showReferenceTask(task))
	})
	for f, name := range map[keys.Family]string{keys.Callback: "callback", keys.AwaitedBy: "awaited-by", keys.Listener: "listener"} {
		each(f, func(key, _ []byte) { fmt.Fprintln(&b, name, strings.Join(cut(key)[1:], " ")) })
	}
	each(keys.Deadline, func(key, _ []byte) {
		kind, at, _, objectID, err := keys.ParseDeadline(key)
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case keys.DeadlinePromise:
			fmt.Fprintln(&b, "timer", objectID, at)
		case keys.DeadlineRetry:
			fmt.Fprintln(&b, "task timer", objectID, recovery.RetryTimer, at)
		case keys.DeadlineLease:
			fmt.Fprintln(&b, "task timer", objectID, recovery.LeaseTimer, at)
		case keys.DeadlineUnblock:
		default:
			t.Fatalf("a deadline of kind %d", kind)
		}
	})
	each(keys.Ready, func(key, _ []byte) {
		_, rest, _ := keys.CutString(key[1:])
		target, _, _ := keys.CutString(rest)
		_, objectID, err := keys.ParseReady(key, keys.Of(keys.Ready, ns, target))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, "announced", objectID, strings.TrimPrefix(target, "\x00"))
	})
	each(keys.Unblock, func(key, value []byte) {
		parts := cut(key)
		at, _, _ := keys.CutUint64(value)
		fmt.Fprintln(&b, "unblock", parts[2], parts[1], at)
	})
	return sortedLines(b.String())
}

// clientRun is one run of random operations on both sides.
type clientRun struct {
	t      *testing.T
	random *rand.Rand
	m      *Machine
	below  *state.MemReader
	ref    *reference
	index  uint64
	cfg    Config
	ids    []string
	// last is the last command with its answer.
	last      *commandv1.Command
	lastReply *commandv1.Reply
	requests  int
	what      string
	// done counts what operations came to.
	done map[string]int
}

func newClientRun(t *testing.T, seed uint64) *clientRun {
	r := &clientRun{t: t, random: rand.New(rand.NewPCG(seed, 1)), below: state.NewMemReader(), cfg: Config{Partitions: 1, CheckInvariants: true},
		ref: &reference{MemStore: recovery.NewMemStore(), now: 1000, retry: 50, announced: map[string]int64{}, unblocks: map[[2]string]int64{}}}
	r.done = map[string]int{}
	r.names(0)
	r.open()
	r.apply(raiseLevelCmd(state.FeatureLevel))
	return r
}

// names gives the run new ids: most promises of the former ones have settled.
func (r *clientRun) names(n int) {
	r.ids = nil
	for _, root := range []string{fmt.Sprint("a", n), fmt.Sprint("b", n)} {
		r.ids = append(r.ids, root, root+":0", root+":1", root+":1.0", root+":dff")
	}
}

// count notes what an operation came to.
func (r *clientRun) count(cmd *commandv1.Command, reply *commandv1.Reply) {
	task, _ := r.ref.Task(cmd.Id)
	if wire.ReplyError(reply) != nil {
		return
	}
	switch cmd.Kind.(type) {
	case *commandv1.Command_AcquireClientTask, *commandv1.Command_CreateClientTask:
		if task.State == recovery.TaskAcquired {
			r.done["acquired"]++
		}
	case *commandv1.Command_SuspendClientTask:
		r.done[map[bool]string{true: "suspended", false: "ready"}[task.State == recovery.TaskSuspended]]++
	case *commandv1.Command_FulfillClientTask:
		r.done["fulfilled"]++
	case *commandv1.Command_FenceClientTask:
		r.done["fenced"]++
	case *commandv1.Command_HeartbeatClientTasks:
		r.done["extended"] += len(reply.GetClientHeartbeat().Held)
	case *commandv1.Command_HaltClientTask:
		r.done["halted"]++
	case *commandv1.Command_ContinueClientTask:
		r.done["continued"]++
	case *commandv1.Command_ReleaseClientTask:
		if task.Releases > 1 {
			r.done["backed off"]++
		}
	case *commandv1.Command_RegisterCallback:
		if len(r.ref.Callbacks(cmd.Id)) > 0 {
			r.done["waiting"]++
		}
	}
}

func (r *clientRun) open() {
	var err error
	if r.m, err = New(r.cfg, r.below); err != nil {
		r.t.Fatalf("%s: open: %v", r.what, err)
	}
}

func (r *clientRun) apply(cmds ...*commandv1.Command) *Result {
	r.index++
	res, err := r.m.Apply(r.index, &commandv1.Entry{TimeMs: r.ref.now, ClientRetryMs: r.ref.retry, Commands: cmds})
	if err != nil {
		r.t.Fatalf("%s: %v", r.what, err)
	}
	r.below.Apply(r.m.Writes())
	r.m.Committed()
	return res
}

func one[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (r *clientRun) id() string { return one(r.random, r.ids...) }

// task is one of the present ids whose task is in a state, if there is one.
func (r *clientRun) task(want recovery.TaskState) string {
	var in []string
	for _, objectID := range r.ids {
		if t, p, err := recovery.GetTask(r.ref, r.ref.now, recovery.Ref{ID: objectID}); err == nil && t.State == want && p.State == recovery.PromisePending {
			in = append(in, objectID)
		}
	}
	if len(in) == 0 {
		return r.id()
	}
	return one(r.random, in...)
}

// version is most often a task's.
func (r *clientRun) version(objectID string) uint64 {
	task, _ := r.ref.Task(objectID)
	return one(r.random, task.Version, task.Version, task.Version, task.Version, task.Version+1, task.Version-1, 0)
}

func (r *clientRun) value() *perdurev1.Value {
	v := &perdurev1.Value{Data: one(r.random, nil, []byte("x"), []byte("yy"))}
	if len(v.Data) > 0 && r.random.IntN(4) == 0 {
		v.Form = perdurev1.DataForm_DATA_FORM_TEXT
	}
	if len(v.Data) == 0 && r.random.IntN(2) == 0 {
		v.Form = perdurev1.DataForm_DATA_FORM_EMPTY
	}
	if r.random.IntN(3) == 0 {
		v.Headers = map[string]string{"h": "1", "g": "2"}
	}
	return v
}

func outcomeOf(v *perdurev1.Value) []byte {
	o := recovery.Outcome{Data: v.Data, Form: recovery.DataForm(v.Form)}
	if len(v.Headers) > 0 {
		o.Headers = []recovery.Tag{{Key: "g", Value: "2"}, {Key: "h", Value: "1"}}
	}
	return recovery.AppendOutcome(nil, o)
}

// create makes a request, and what the rules are asked.
func (r *clientRun) create(objectID string) (*perdurev1.CreateClientPromiseRequest, recovery.CreateRequest) {
	req := &perdurev1.CreateClientPromiseRequest{Id: objectID, Param: r.value(), Tags: map[string]string{}, TimeoutAtMs: r.ref.now + one(r.random, r.random.Int64N(400), 5000+r.random.Int64N(400), 5000+r.random.Int64N(400)) - 10}
	if r.random.IntN(20) == 0 {
		req.TimeoutAtMs = -1
	}
	want := recovery.CreateRequest{ID: objectID, Incarnation: r.index + 1, Param: req.Param.Data, TimeoutAt: req.TimeoutAtMs}
	if r.random.IntN(3) > 0 {
		want.Target = one(r.random, "poll://any@g", "poll://any@g/p", "http://h/x")
		req.Tags[state.TagTarget] = want.Target
	}
	if r.random.IntN(4) == 0 {
		req.Tags[state.TagTimer], want.Timer = "true", true
	}
	switch r.random.IntN(4) {
	case 0:
		req.Tags[state.TagScope], want.External = "global", true
	case 1:
		req.Tags[state.TagExternal], want.External = "true", true
	case 2:
		req.Tags[state.TagScope] = "local"
	}
	if r.random.IntN(6) == 0 {
		want.DelayUntil = r.ref.now + r.random.Int64N(200)
		req.Tags[state.TagDelay] = fmt.Sprint(want.DelayUntil)
	}
	want.Tags = wire.DecodeTags(req.Tags)
	return req, want
}

func (r *clientRun) settleTo() (perdurev1.PromiseState, recovery.PromiseState) {
	to := one(r.random, 2, 2, 3, 4, 1, 5, 0)
	return perdurev1.PromiseState(to), recovery.PromiseState(to)
}

// sheet is an answer of the reference: what is shown of task and promise, or the refusal's code.
type sheet struct {
	task    *recovery.Task
	promise *recovery.Promise
	ready   []recovery.Promise
	held    []recovery.TaskRef
	err     error
}

var badRequest = &recovery.Error{Code: recovery.Invalid}

// operation makes a random command, and what the reference does for it.
func (r *clientRun) operation() (*commandv1.Command, func() sheet) {
	m, kind := r.ref, r.random.IntN(16)
	objectID := r.id()
	// Most often a task in the state that the operation starts from.
	from := map[int]recovery.TaskState{7: recovery.TaskPending, 8: recovery.TaskPending, 9: recovery.TaskAcquired, 10: recovery.TaskAcquired,
		11: recovery.TaskAcquired, 12: recovery.TaskAcquired, 13: recovery.TaskAcquired, 14: recovery.TaskAcquired, 15: recovery.TaskHalted}
	if want := from[kind]; want != 0 && r.random.IntN(4) > 0 {
		objectID = r.task(want)
	}
	version := r.version(objectID)
	ref := recovery.TaskRef{ID: objectID, Version: min(version, 1<<63-1)}
	ttl, pid := one(r.random, int64(30), 500, 2000, 2000, 2000, 2000, 0), one(r.random, "p", "p", "p", "p", "p", "p", "q", "")
	task := func() *recovery.Task {
		task, _, err := recovery.GetTask(m, m.now, recovery.Ref{ID: objectID})
		if err != nil {
			r.t.Fatalf("%s: %v", r.what, err)
		}
		return &task
	}
	origin := func(s string) string { o, _, _ := strings.Cut(s, ":"); return o }
	settled := func(st recovery.Settlement, err error) error {
		if err == nil {
			m.chain(st)
		}
		return err
	}
	switch kind {
	case 0, 1:
		req, want := r.create(objectID)
		return clientCmd(req), func() sheet {
			made, fx, err := recovery.Create(m, m.now, want, m.retry)
			m.tell(fx)
			return sheet{promise: &made.Promise, err: err}
		}
	case 2:
		to, want := r.settleTo()
		req := &perdurev1.SettleClientPromiseRequest{Id: objectID, State: to, Value: r.value()}
		return clientCmd(req), func() sheet {
			st, err := recovery.Settle(m, m.now, recovery.Ref{ID: objectID}, want, outcomeOf(req.Value))
			return sheet{promise: &st.Promise, err: settled(st, err)}
		}
	case 3:
		awaiter := r.id()
		return clientCmd(&perdurev1.RegisterCallbackRequest{Id: objectID, Awaiter: awaiter}), func() sheet {
			if origin(objectID) != origin(awaiter) {
				return sheet{err: badRequest}
			}
			got, err := recovery.RegisterCallback(m, m.now, recovery.Ref{ID: objectID}, recovery.Ref{ID: awaiter}, false)
			return sheet{promise: &got.Promise, err: err}
		}
	case 4:
		address := one(r.random, "poll://uni@g/p", "poll://uni@g/q", "http://l", "")
		return clientCmd(&perdurev1.RegisterListenerRequest{Id: objectID, Address: address}), func() sheet {
			got, err := recovery.RegisterListener(m, m.now, recovery.Ref{ID: objectID}, address, false)
			return sheet{promise: &got.Promise, err: err}
		}
	case 5, 6:
		req, want := r.create(objectID)
		return clientCmd(&perdurev1.CreateClientTaskRequest{Promise: req, Pid: pid, TtlMs: ttl}), func() sheet {
			made, err := recovery.CreateAcquired(m, m.now, want, pid, ttl)
			return sheet{task: &made.Task, promise: &made.Promise, err: err}
		}
	case 7, 8:
		return clientCmd(&perdurev1.AcquireClientTaskRequest{Id: objectID, Version: version, Pid: pid, TtlMs: ttl}), func() sheet {
			got, err := recovery.Acquire(m, m.now, ref, pid, ttl)
			return sheet{task: &got.Task, promise: &got.Promise, err: err}
		}
	case 9:
		return clientCmd(&perdurev1.ReleaseClientTaskRequest{Id: objectID, Version: version}), func() sheet {
			got, fx, err := recovery.Return(m, m.now, ref, m.retry)
			m.tell(fx)
			return sheet{task: &got, err: err}
		}
	case 10, 11:
		req := &perdurev1.SuspendClientTaskRequest{Id: objectID, Version: version}
		var refs []recovery.Ref
		other := false
		for range r.random.IntN(4) {
			a := r.id()
			for try := 0; try < 6; try++ {
				if p, ok := m.Promise(a); ok && p.Awaitable() && origin(a) == origin(objectID) && a != objectID {
					break
				}
				a = r.id()
			}
			req.Awaited, refs = append(req.Awaited, a), append(refs, recovery.Ref{ID: a})
			other = other || origin(a) != origin(objectID)
		}
		return clientCmd(req), func() sheet {
			if other {
				return sheet{err: badRequest}
			}
			got, err := recovery.Suspend(m, m.now, ref, refs, false)
			return sheet{task: &got.Task, ready: got.Ready, err: err}
		}
	case 12:
		to, want := r.settleTo()
		req := &perdurev1.FulfillClientTaskRequest{Id: objectID, Version: version, State: to, Value: r.value()}
		return clientCmd(req), func() sheet {
			st, err := recovery.Fulfill(m, m.now, ref, want, outcomeOf(req.Value))
			if err = settled(st, err); err != nil {
				return sheet{err: err}
			}
			return sheet{task: task(), promise: &st.Promise}
		}
	case 13:
		other := r.id()
		req := &perdurev1.FenceClientTaskRequest{Id: objectID, Version: version}
		if r.random.IntN(2) == 0 {
			create, want := r.create(other)
			req.Action = &perdurev1.FenceClientTaskRequest_Create{Create: create}
			return clientCmd(req), func() sheet {
				if _, _, err := recovery.Create(recovery.NewMemStore(), m.now, want, m.retry); err != nil || other == objectID {
					return sheet{err: badRequest}
				}
				if _, err := recovery.Fence(m, m.now, ref); err != nil {
					return sheet{err: err}
				}
				made, fx, err := recovery.Create(m, m.now, want, m.retry)
				m.tell(fx)
				return sheet{promise: &made.Promise, err: err}
			}
		}
		to, want := r.settleTo()
		settle := &perdurev1.SettleClientPromiseRequest{Id: other, State: to, Value: r.value()}
		req.Action = &perdurev1.FenceClientTaskRequest_Settle{Settle: settle}
		return clientCmd(req), func() sheet {
			if !want.Settable() || other == objectID {
				return sheet{err: badRequest}
			}
			if _, err := recovery.Fence(m, m.now, ref); err != nil {
				return sheet{err: err}
			}
			if _, ok := m.Promise(other); !ok {
				return sheet{}
			}
			st, err := recovery.Settle(m, m.now, recovery.Ref{ID: other}, want, outcomeOf(settle.Value))
			return sheet{promise: &st.Promise, err: settled(st, err)}
		}
	case 14:
		req := &perdurev1.HeartbeatClientTasksRequest{Pid: pid}
		var refs []recovery.TaskRef
		for range 1 + r.random.IntN(3) {
			objectID := one(r.random, objectID, r.id())
			version := r.version(objectID)
			req.Tasks = append(req.Tasks, &perdurev1.ClientTaskRef{Id: objectID, Version: version})
			refs = append(refs, recovery.TaskRef{ID: objectID, Version: version})
		}
		return clientCmd(req), func() sheet { return sheet{held: recovery.Heartbeat(m, m.now, pid, refs)} }
	default:
		if r.random.IntN(3) > 0 {
			return clientCmd(&perdurev1.ContinueClientTaskRequest{Id: objectID}), func() sheet {
				got, fx, err := recovery.Continue(m, m.now, recovery.Ref{ID: objectID}, m.retry)
				m.tell(fx)
				return sheet{task: &got, err: err}
			}
		}
		if r.random.IntN(2) > 0 {
			break
		}
		return clientCmd(&perdurev1.HaltClientTaskRequest{Id: objectID}), func() sheet {
			got, err := recovery.Halt(m, m.now, recovery.Ref{ID: objectID})
			return sheet{task: &got, err: err}
		}
	}
	return tickCmd(1000), func() sheet { m.sweep(); return sheet{} }
}

// step does one operation on both sides.
func (r *clientRun) step(what string) {
	r.what = what
	m := r.ref
	if r.random.IntN(60) == 0 {
		r.requests++
		r.names(r.requests)
	}
	asleep := map[string]bool{}
	for t := range m.Tasks() {
		asleep[t.ID] = t.State == recovery.TaskSuspended
	}
	m.now += one(r.random, int64(0), 0, 1, 5, 20, 60)
	if r.random.IntN(1000) == 0 {
		m.now += state.MaxUnblockAgeMS / 2
	}
	m.messages = nil
	cmds := []*commandv1.Command{}
	if r.random.IntN(3) > 0 {
		cmds = append(cmds, tickCmd(1000))
		m.sweep()
	}
	cmd, do := r.operation()
	r.what = fmt.Sprintf("%s, at %d: %v", what, m.now, cmd)
	again := r.last != nil && r.random.IntN(10) == 0
	if again {
		cmd = proto.CloneOf(r.last)
		cmd.Request.AgeMs = 1
		r.what = fmt.Sprintf("%s again, at %d: %v", what, m.now, cmd)
	} else {
		r.requests++
		cmd.Request = &perdurev1.RequestID{Id: fmt.Appendf(nil, "request-%08d", r.requests)}
	}
	if cmd.Id != "" {
		m.touch(cmd.Id)
	}
	cmds = append(cmds, cmd)
	if again {
		// The retry of a command whose answer is stored, or that its own guard makes idempotent, changes nothing.
		r.done["repeated"]++
		reply := r.apply(cmds...).Replies[len(cmds)-1]
		if !proto.Equal(reply, r.lastReply) {
			r.t.Fatalf("%s: answered %v, the first time %v", r.what, reply, r.lastReply)
		}
	} else {
		want := do()
		res := r.apply(cmds...)
		reply := res.Replies[len(cmds)-1]
		if got, want := showSheet(reply), want.show(); got != want {
			r.t.Fatalf("%s:\nanswered %s\nmust be  %s", r.what, got, want)
		}
		r.count(cmd, reply)
		maps.DeleteFunc(m.announced, func(objectID string, _ int64) bool {
			t, _ := m.Task(objectID)
			return t.State != recovery.TaskPending
		})
		for objectID, was := range asleep {
			if t, _ := m.Task(objectID); was && t.State == recovery.TaskPending {
				r.done["resumed"]++
			}
		}
		r.done["unblocked"] += len(res.Effects.Unblocked)
		got := messagesOf(&res.Effects)
		slices.SortStableFunc(m.messages, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
		if !slices.Equal(got, m.messages) {
			r.t.Fatalf("%s:\nsends %q\nmust  %q", r.what, got, m.messages)
		}
		r.last, r.lastReply = nil, nil
		if rule, _ := ruleOf(cmd); rule.stored && wire.ReplyError(reply) == nil {
			r.last, r.lastReply = cmd, reply
		}
	}
	if r.random.IntN(20) == 0 {
		r.compare()
	}
	if r.random.IntN(100) == 0 {
		r.open()
	}
}

func (s sheet) show() string {
	if s.err != nil {
		var e *recovery.Error
		if !errors.As(s.err, &e) {
			return s.err.Error()
		}
		return e.Code.String()
	}
	var out []string
	if s.task != nil {
		t := *s.task
		t.Incarnation, t.Releases, t.ReleasedAt = 0, 0, 0
		out = append(out, showReferenceTask(t))
	}
	for _, p := range append(s.ready, opt(s.promise)...) {
		p.Incarnation, p.DelayUntil, p.Timer, p.External = 0, 0, false, false
		out = append(out, showReference(p))
	}
	for _, ref := range s.held {
		out = append(out, fmt.Sprint("held ", ref.ID, " ", ref.Version))
	}
	return strings.Join(out, "\n")
}

func opt(p *recovery.Promise) []recovery.Promise {
	if p == nil {
		return nil
	}
	return []recovery.Promise{*p}
}

// showSheet shows an answer as the reference shows its own.
func showSheet(reply *commandv1.Reply) string {
	s := sheet{}
	decode := func(w *perdurev1.Promise) recovery.Promise {
		p := recovery.Promise{ID: w.Id, State: recovery.PromiseState(w.State), Param: w.Param, Target: w.Address, TimeoutAt: w.TimeoutAtMs,
			CreatedAt: w.CreatedAtMs, SettledAt: w.SettledAtMs, Tags: wire.DecodeTags(w.Tags)}
		if v := w.Value; v != nil && (p.SettledAt != p.TimeoutAt) {
			p.Value = outcomeOf(&perdurev1.Value{Data: v.GetValue(), Form: v.Form, Headers: v.Headers})
		}
		return p
	}
	promise := reply.GetPromise().GetPromise()
	if f := reply.GetFence(); f != nil {
		promise = f.Promise
	}
	if k := reply.GetClientTask(); k != nil {
		promise = k.Promise
		t := k.Task
		s.task = &recovery.Task{ID: t.Id, State: recovery.TaskState(t.State), Version: t.Version, PID: t.Pid, TTL: t.TtlMs, LeaseAt: t.LeaseAtMs,
			RetryAt: t.RetryAtMs, Resumes: t.Resumes, Target: t.Address}
		for _, p := range k.Ready {
			s.ready = append(s.ready, decode(p))
		}
	}
	if promise != nil {
		p := decode(promise)
		s.promise = &p
	}
	for _, ref := range reply.GetClientHeartbeat().GetHeld() {
		s.held = append(s.held, recovery.TaskRef{ID: ref.Id, Version: ref.Version})
	}
	if e := wire.ReplyError(reply); e != nil {
		s.err = &recovery.Error{Code: codeOf(e)}
	}
	return s.show()
}

// codeOf is the protocol's code of a refusal.
func codeOf(e *api.Error) recovery.Code {
	switch e.Reason {
	case perdurev1.Reason_REASON_PROMISE_NOT_FOUND:
		return recovery.NotFound
	case perdurev1.Reason_REASON_STALE_TASK:
		return recovery.Conflict
	case perdurev1.Reason_REASON_BAD_REQUEST, perdurev1.Reason_REASON_BAD_ID:
		return recovery.Invalid
	case perdurev1.Reason_REASON_RULE_BROKEN:
		return recovery.Precondition
	}
	return 0
}

// compare compares the two states, and what queries say of one object.
func (r *clientRun) compare() {
	if got, want := snapshotOf(r.t, r.below), r.ref.snapshot(); got != want {
		r.t.Fatalf("%s: the states differ:\n%s", r.what, difference(want, got))
	}
	for _, v := range recovery.Invariants(r.ref, r.ref.now) {
		r.t.Fatalf("%s: the reference: %v", r.what, v)
	}
	objectID := r.id()
	reply, err := query.Answer(r.below, 0, &commandv1.Query{Namespace: ns, Id: objectID, Kind: &commandv1.Query_ClientTask{ClientTask: &perdurev1.GetClientTaskRequest{}}})
	if err != nil {
		r.t.Fatal(err)
	}
	task, p, err := recovery.GetTask(r.ref, r.ref.now, recovery.Ref{ID: objectID})
	want := sheet{task: &task, promise: &p, err: err}
	got := &commandv1.Reply{Kind: &commandv1.Reply_ClientTask{ClientTask: reply.GetClientTask()}}
	if e := wire.QueryError(reply); e != nil {
		got = wire.Refusal(e)
	}
	if got, want := showSheet(got), want.show(); got != want {
		r.t.Fatalf("%s: task %q is read as %s, must be %s", r.what, objectID, got, want)
	}
}

// end compares everything and audits the whole state.
func (r *clientRun) end() {
	r.compare()
	report, err := audit.Run(r.below, r.ref.now, state.Partition{Count: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range report.Violations {
		r.t.Errorf("%s: %v", r.what, v)
	}
}
