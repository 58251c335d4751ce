package recovery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"perdure/internal/testkit"
)

// TestModel compares the rules with the model under random operations: equal answers, equal effects, equal
// states, every invariant after every step. It also follows each promise and task over time, and checks that
// answers are the same whether or not expirations have run.
func TestModel(t *testing.T) {
	const episodes, steps = 40, 55 // per check; with rapid's 100 checks 220,000 operations
	total := 0
	results := map[string]int{}
	testkit.Checks(t, testkit.Choose(100, 30, 100))
	rapid.Check(t, func(rt *rapid.T) {
		for range episodes {
			r := &run{T: rt, s: NewMemStore(), m: newModel(), settled: map[string]string{}, results: results}
			for range steps {
				r.step()
				total++
			}
		}
	})
	if testkit.Long() && total < 200_000 {
		t.Errorf("only %d operations", total)
	}
	if total < 40_000 { // fewer than -short makes
		return
	}
	// A run in which some of this never happens has tested nothing about it.
	for _, kind := range kinds {
		want := []string{"ok"}
		switch kind {
		case "settle", "fulfill":
			want = []string{"ok", "not found", "conflict", "invalid"}
		case "acquire", "fence", "release", "halt", "continue", "get":
			want = []string{"ok", "not found", "conflict"}
		case "create":
			want = []string{"ok", "invalid"}
		case "create acquired":
			want = []string{"ok", "invalid", "conflict", "precondition"}
		case "callback", "suspend":
			want = []string{"ok", "not found", "conflict", "invalid", "precondition"}
		case "listen":
			want = []string{"ok", "not found", "conflict", "precondition"}
		}
		for _, result := range want {
			if results[kind+": "+result] < total/20_000 {
				t.Errorf("%s: %s happened %d times", kind, result, results[kind+": "+result])
			}
		}
	}
	for _, event := range []string{"sent: execute", "sent: unblock", "woken", "buffered", "slept on", "lease lapsed", "timed out", "ready"} {
		if results[event] < total/4_000 {
			t.Errorf("%s happened %d times", event, results[event])
		}
	}
	if testing.Verbose() {
		for _, key := range slices.Sorted(maps.Keys(results)) {
			t.Logf("%7d %s", results[key], key)
		}
		t.Logf("%7d operations", total)
	}
}

var (
	ids   = []string{"a", "a:0", "a:1", "b", "c", "d"}
	kinds = []string{"create", "create acquired", "settle", "fulfill", "deadline", "callback", "listen", "acquire", "fence",
		"release", "suspend", "heartbeat", "halt", "continue", "resume", "lease timer", "retry timer", "get", "tick"}
	// Some happen more often, so that the rest finds something to work on.
	genKind    = rapid.SampledFrom(append([]string{"suspend", "create", "acquire", "suspend", "settle", "create acquired", "acquire", "suspend"}, kinds...))
	genID      = rapid.SampledFrom(ids)
	genDice    = rapid.IntRange(0, 9)
	genAdvance = rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 0, 1, 1, 2, 9})
	genTo      = rapid.SampledFrom([]PromiseState{PromiseResolved, PromiseResolved, PromiseRejected, PromiseRejectedCanceled, PromiseRejectedTimedout, PromisePending})
	genName    = rapid.SampledFrom([]string{"p", "q"})
	genLease   = rapid.SampledFrom([]int64{15, 40, 90, 5, 2, 1})
	genDelay   = rapid.SampledFrom([]int64{0, 0, 1, 5})
	genLong    = rapid.SampledFrom([]int64{90, 60, 40, 40, 25, 25, 10, 3, 1, 0, -2})
)

type run struct {
	*rapid.T
	s       *MemStore
	m       *model
	now     int64
	born    uint64
	settled map[string]string
	results map[string]int
}

// pick draws an id, most often one that fits.
func (r *run) pick(fits func(v *model, id string) bool) string {
	if fits != nil && genDice.Draw(r.T, "fitting") < 8 {
		r.m.now = r.now
		v := r.m.view()
		var fit []string
		for _, id := range ids {
			if fits(v, id) {
				fit = append(fit, id)
			}
		}
		if len(fit) > 0 {
			return fit[genDice.Draw(r.T, "which")%len(fit)]
		}
	}
	return genID.Draw(r.T, "id")
}

func inTaskState(state string) func(*model, string) bool {
	return func(v *model, id string) bool { return v.tasks[id].state == state }
}

func (r *run) missing(v *model, id string) bool { _, ok := v.promises[id]; return !ok }
func (r *run) open(v *model, id string) bool    { return v.promises[id].state == "pending" }
func (r *run) lapsed(v *model, id string) bool {
	return v.tasks[id].state == "pending" && r.m.tasks[id].state == "acquired"
}

// waitedFor: pending, with an awaiter or a listener.
func (r *run) waitedFor(v *model, id string) bool {
	for _, set := range []map[[2]string]bool{r.m.waits, r.m.listeners} {
		for pair := range set {
			if pair[0] == id && r.open(v, id) {
				return true
			}
		}
	}
	return false
}

// fitting says which ids an operation is most often about.
func (r *run) fitting(kind string) func(*model, string) bool {
	switch kind {
	case "create", "create acquired":
		return r.missing
	case "fulfill", "fence", "release", "suspend":
		return inTaskState("acquired")
	case "acquire", "retry timer":
		return inTaskState("pending")
	case "lease timer":
		return r.lapsed
	case "continue":
		return inTaskState("halted")
	case "resume":
		return inTaskState("suspended")
	case "settle", "deadline":
		return r.waitedFor
	case "callback", "listen":
		return r.open
	}
	return nil
}

// ref draws a reference, most often a right one.
func (r *run) ref(id string) TaskRef {
	ref := TaskRef{ID: id, Version: r.m.tasks[id].ver}
	switch genDice.Draw(r.T, "version") {
	case 8:
		ref.Version++
	case 9:
		ref.Version = max(ref.Version, 1) - 1
	}
	switch genDice.Draw(r.T, "incarnation") {
	case 9:
		ref.Incarnation = r.born + 1
	case 6, 7, 8:
		ref.Incarnation = r.m.promises[id].inc
	}
	return ref
}

func (r *run) other(id string) Ref {
	ref := r.ref(id)
	return Ref{ref.ID, ref.Incarnation}
}

func (r *run) draw() op {
	o := op{kind: genKind.Draw(r.T, "kind"), now: r.now}
	o.ref = r.ref(r.pick(r.fitting(o.kind)))
	switch o.kind {
	case "create", "create acquired":
		r.born++
		o.born = r.born
		dice := genDice.Draw(r.T, "sort")
		if dice < 7 {
			o.target = "w"
		}
		o.timer, o.external = dice == 6 || dice == 7, dice == 8
		o.timeout = max(0, r.now+genLong.Draw(r.T, "timeout"))
		if genDice.Draw(r.T, "delayed") == 9 {
			o.delay = max(0, r.now+genLong.Draw(r.T, "delay"))
		}
		o.value = genName.Draw(r.T, "param")
		o.pid, o.ttl = genName.Draw(r.T, "pid"), genLease.Draw(r.T, "ttl")
	case "settle", "fulfill", "deadline":
		o.to, o.value = genTo.Draw(r.T, "to"), genName.Draw(r.T, "value")
		o.asleep = uint(genDice.Draw(r.T, "asleep"))
	case "callback":
		o.others = []Ref{r.other(r.pick(inTaskState("acquired")))}
		o.anyAwaited = genDice.Draw(r.T, "any") < 5
	case "listen":
		o.address = genName.Draw(r.T, "address")
		o.anyAwaited = genDice.Draw(r.T, "any") < 5
	case "acquire":
		o.pid, o.ttl = genName.Draw(r.T, "pid"), genLease.Draw(r.T, "ttl")
	case "release":
		o.delay = genDelay.Draw(r.T, "delay")
	case "suspend":
		for range 1 + genDice.Draw(r.T, "awaited")%3 {
			o.others = append(o.others, r.other(r.pick(func(v *model, id string) bool { return id != o.ref.ID && r.open(v, id) })))
		}
		o.anyAwaited = genDice.Draw(r.T, "any") < 5
	case "resume":
		o.others = []Ref{{ID: genID.Draw(r.T, "by")}}
	case "heartbeat":
		o.pid = genName.Draw(r.T, "pid")
		for range genDice.Draw(r.T, "refs") % 4 {
			o.refs = append(o.refs, r.ref(r.pick(inTaskState("acquired"))))
		}
	}
	return o
}

func (r *run) step() {
	r.now += genAdvance.Draw(r.T, "advance")
	o := r.draw()
	before := r.s.Clone()
	got, want := perform(r.s, o), r.m.do(o)
	if !slices.Equal(got.lines, want.lines) || !slices.Equal(got.sent, want.sent) {
		r.Fatalf("%+v\ngot  %q\n     %q\nwant %q\n     %q\nin\n%s", o, got.lines, got.sent, want.lines, want.sent, dump(before))
	}
	if state, want := fingerprint(r.s), r.m.fingerprint(); state != want {
		r.Fatalf("%+v\nleads to\n%snot as in the model, from\n%s", o, dump(r.s), dump(before))
	}
	if got.lines[0] != "ok" && fingerprint(before) != fingerprint(r.s) {
		r.Fatalf("%+v is refused, and changes\n%sto\n%s", o, dump(before), dump(r.s))
	}
	for _, v := range Invariants(r.s, r.now) {
		r.Errorf("%+v\nbreaks %v, from\n%s", o, v, dump(before))
	}
	r.histories(o, before)
	r.early(o, before, got)
	r.count(o, before, got)
}

// histories checks each promise and task against its previous state.
func (r *run) histories(o op, before *MemStore) {
	for old := range before.Promises() {
		if p, ok := r.s.Promise(old.ID); !ok || p.Incarnation != old.Incarnation || p.TimeoutAt != old.TimeoutAt || p.CreatedAt != old.CreatedAt {
			r.Fatalf("%+v changes %s to %s", o, showPromise(old), showPromise(p))
		}
	}
	for p := range r.s.Promises() {
		p = p.At(r.now)
		was, ok := r.settled[p.ID]
		switch shown := showPromise(p); {
		case ok && was != shown:
			r.Fatalf("%+v: once settled as %s, now %s", o, was, shown)
		case p.State.Settled():
			r.settled[p.ID] = shown
		}
	}
	edges := map[TaskState][]TaskState{
		TaskPending:   {TaskAcquired, TaskHalted, TaskFulfilled},
		TaskAcquired:  {TaskPending, TaskSuspended, TaskHalted, TaskFulfilled},
		TaskSuspended: {TaskPending, TaskHalted, TaskFulfilled},
		TaskHalted:    {TaskPending, TaskFulfilled},
	}
	for t := range r.s.Tasks() {
		old, ok := before.Task(t.ID)
		if !ok {
			if t.Version > 1 || (t.Version == 1) != (t.State == TaskAcquired) {
				r.Fatalf("%+v: born %s", o, showTask(t))
			}
			continue
		}
		p, _ := before.Promise(t.ID)
		projected := old.At(r.now, p)
		rise := uint64(0)
		if t.State == TaskAcquired && projected.State != TaskAcquired && t.Version != old.Version {
			rise = 1
		}
		// Left as stored though its lease has lapsed or its deadline has come: no step was taken.
		same := t.State == old.State
		if t.Version != old.Version+rise || !(same || rise == 1 || slices.Contains(edges[old.State], t.State)) ||
			(rise == 1 && projected.State != TaskPending) {
			r.Fatalf("%+v: from %s to %s", o, showTask(old), showTask(t))
		}
		if !same && t.State == TaskPending && !p.Live(r.now) {
			r.Fatalf("%+v makes a dead task pending: %s", o, showTask(t))
		}
	}
}

// early checks that an answer is the same when the expirations of the request's objects have run before.
func (r *run) early(o op, before *MemStore, got answer) {
	switch o.kind {
	case "deadline", "lease timer", "retry timer", "tick":
		return
	}
	named := []string{o.ref.ID}
	for _, other := range o.others {
		named = append(named, other.ID)
	}
	for _, ref := range o.refs {
		named = append(named, ref.ID)
	}
	due := false
	for _, id := range named {
		if st := TimeoutPromise(before, o.now, Ref{ID: id}); st.Changed {
			Propagate(before, o.now, st, modelRetry)
			due = true
		}
	}
	for _, id := range named {
		expired, _ := ExpireLease(before, o.now, Ref{ID: id}, modelRetry)
		due = due || expired
	}
	if !due {
		return
	}
	again := perform(before, o)
	// When the next Execute is due is the one thing that differs, and no part of any protocol's answer.
	for _, lines := range [][]string{got.lines, again.lines} {
		for i, line := range lines {
			if head, tail, ok := strings.Cut(line, " retry="); ok {
				_, tail, _ = strings.Cut(tail+" ", " ")
				lines[i] = strings.TrimSpace(head + " " + tail)
			}
		}
	}
	if !slices.Equal(got.lines, again.lines) {
		r.Fatalf("%+v\nanswers %q\nafter what was due %q", o, got.lines, again.lines)
	}
}

func (r *run) count(o op, before *MemStore, got answer) {
	r.results[o.kind+": "+got.lines[0]]++
	for _, line := range got.sent {
		word, _, _ := strings.Cut(line, " ")
		r.results["sent: "+word]++
	}
	if o.kind == "suspend" && len(got.lines) > 2 {
		r.results["ready"]++
	}
	for t := range r.s.Tasks() {
		old, ok := before.Task(t.ID)
		switch {
		case !ok:
		case old.State == TaskSuspended && t.State == TaskPending:
			r.results["woken"]++
		case old.State == TaskAcquired && t.State == TaskPending && strings.HasPrefix(o.kind, "lease"):
			r.results["lease lapsed"]++
		case len(t.Resumes) > len(old.Resumes):
			r.results["buffered"]++
		case t.State == TaskSuspended && len(r.s.AwaitedBy(t.ID)) < len(before.AwaitedBy(t.ID)):
			r.results["slept on"]++
		}
	}
	for p := range r.s.Promises() {
		if old, ok := before.Promise(p.ID); ok && old.State != p.State && p.SettledAt == p.TimeoutAt {
			r.results["timed out"]++
		}
	}
}

// perform carries an operation out by the rules.
func perform(s *MemStore, o op) answer {
	id, ref := o.ref.ID, Ref{o.ref.ID, o.ref.Incarnation}
	lines, fx, err := rules(s, o, id, ref)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return answer{lines: []string{err.Error()}}
		}
		return answer{lines: []string{e.Code.String()}}
	}
	sent := showEffects(fx)
	slices.Sort(sent)
	return answer{lines: append([]string{"ok"}, lines...), sent: sent}
}

func rules(s *MemStore, o op, id string, ref Ref) (lines []string, fx Effects, err error) {
	req := CreateRequest{ID: id, Incarnation: o.born, Param: []byte(o.value), Target: o.target, Timer: o.timer, External: o.external,
		TimeoutAt: o.timeout, DelayUntil: o.delay}
	created := func(c Created) []string {
		if c.HasTask {
			return []string{showPromise(c.Promise), showTask(c.Task)}
		}
		return []string{showPromise(c.Promise)}
	}
	registered := func(r Registered) []string {
		if r.Waiting {
			return []string{"waiting", showPromise(r.Promise)}
		}
		return []string{showPromise(r.Promise)}
	}
	done := func(ok bool) []string {
		if ok {
			return []string{"done"}
		}
		return nil
	}
	switch o.kind {
	case "create":
		var c Created
		c, fx, err = Create(s, o.now, req, modelRetry)
		lines = created(c)
	case "create acquired":
		var c Created
		c, err = CreateAcquired(s, o.now, req, o.pid, o.ttl)
		lines = created(c)
	case "settle", "fulfill", "deadline":
		var st Settlement
		switch o.kind {
		case "settle":
			st, err = Settle(s, o.now, ref, o.to, []byte(o.value))
		case "fulfill":
			st, err = Fulfill(s, o.now, o.ref, o.to, []byte(o.value))
		case "deadline":
			st = TimeoutPromise(s, o.now, ref)
		}
		if st.Changed {
			lines = []string{"settled " + strings.Join(st.Awaiters, ","), showPromise(st.Promise)}
			fx = secondHalf(s, o, st)
		} else if o.kind != "deadline" {
			lines = []string{showPromise(st.Promise)}
		}
	case "callback":
		var r Registered
		r, err = RegisterCallback(s, o.now, ref, o.others[0], o.anyAwaited)
		lines = registered(r)
	case "listen":
		var r Registered
		r, err = RegisterListener(s, o.now, ref, o.address, o.anyAwaited)
		lines = registered(r)
	case "acquire", "fence":
		var h Holding
		if o.kind == "acquire" {
			h, err = Acquire(s, o.now, o.ref, o.pid, o.ttl)
		} else {
			h, err = Fence(s, o.now, o.ref)
		}
		lines = []string{showPromise(h.Promise), showTask(h.Task)}
	case "release":
		var t Task
		t, fx, err = Release(s, o.now, o.ref, o.delay, modelRetry)
		lines = []string{showTask(t)}
	case "suspend":
		var got Suspended
		got, err = Suspend(s, o.now, o.ref, o.others, o.anyAwaited)
		lines = []string{showTask(got.Task)}
		for _, p := range got.Ready {
			lines = append(lines, showPromise(p))
		}
	case "heartbeat":
		for _, held := range Heartbeat(s, o.now, o.pid, o.refs) {
			lines = append(lines, held.ID)
		}
	case "halt":
		var t Task
		t, err = Halt(s, o.now, ref)
		lines = []string{showTask(t)}
	case "continue":
		var t Task
		t, fx, err = Continue(s, o.now, ref, modelRetry)
		lines = []string{showTask(t)}
	case "resume":
		_, fx = Resume(s, o.now, id, o.others[0].ID, modelRetry)
	case "lease timer":
		var ok bool
		ok, fx = ExpireLease(s, o.now, ref, modelRetry)
		lines = done(ok)
	case "retry timer":
		var ok bool
		ok, fx = ExpireRetry(s, o.now, ref, modelRetry)
		lines = done(ok)
	case "get":
		var p Promise
		if p, err = GetPromise(s, o.now, ref); err == nil {
			lines = []string{showPromise(p)}
			if t, _, err := GetTask(s, o.now, ref); err == nil {
				lines = append(lines, showTask(t))
			}
		}
	case "tick":
		promises, tasks := s.Expired(o.now)
		var halves []Settlement
		for _, id := range promises {
			halves = append(halves, TimeoutPromise(s, o.now, Ref{ID: id}))
		}
		for _, st := range halves {
			fx.Add(Propagate(s, o.now, st, modelRetry))
		}
		for _, id := range tasks {
			_, more := ExpireLease(s, o.now, Ref{ID: id}, modelRetry)
			fx.Add(more)
			_, more = ExpireRetry(s, o.now, Ref{ID: id}, modelRetry)
			fx.Add(more)
		}
	}
	return lines, fx, err
}

// secondHalf resumes the awaiters but those that are to sleep on, and may.
func secondHalf(s *MemStore, o op, st Settlement) Effects {
	var fx Effects
	for i, awaiter := range st.Awaiters {
		t, _ := s.Task(awaiter)
		if o.asleep>>i&1 == 1 && (t.State != TaskSuspended || len(s.AwaitedBy(awaiter)) > 0) {
			continue
		}
		_, more := Resume(s, o.now, awaiter, st.Promise.ID, modelRetry)
		fx.Add(more)
	}
	fx.Add(st.Unblocks())
	return fx
}

// fingerprint is a whole state in bytes.
func fingerprint(s *MemStore) string {
	var b []byte
	for p := range s.Promises() {
		b = AppendPromise(b, p)
	}
	for t := range s.Tasks() {
		b = AppendTask(b, t)
	}
	for x, y := range s.AllCallbacks() {
		b = append(b, "|"+x+"<"+y...)
	}
	for x, y := range s.AllListeners() {
		b = append(b, "|"+x+">"+y...)
	}
	for id, at := range s.PromiseTimers() {
		b = fmt.Appendf(b, "|%s@%d", id, at)
	}
	return string(b)
}

func (m *model) fingerprint() string {
	var b []byte
	for _, id := range slices.Sorted(maps.Keys(m.promises)) {
		p := m.promises[id]
		state, _ := ParsePromiseState(p.state)
		b = AppendPromise(b, Promise{ID: id, Incarnation: p.inc, State: state, Param: []byte(p.param), Value: []byte(p.value),
			Target: p.target, Timer: p.timer, External: p.external, TimeoutAt: p.timeout, CreatedAt: p.created,
			SettledAt: p.settled, DelayUntil: p.delayed})
	}
	for _, id := range slices.Sorted(maps.Keys(m.tasks)) {
		b = AppendTask(b, m.task(id))
	}
	pairs := func(set map[[2]string]bool, sign string) {
		keys := slices.Collect(maps.Keys(set))
		slices.SortFunc(keys, func(a, b [2]string) int {
			if c := strings.Compare(a[0], b[0]); c != 0 {
				return c
			}
			return strings.Compare(a[1], b[1])
		})
		for _, k := range keys {
			b = append(b, "|"+k[0]+sign+k[1]...)
		}
	}
	pairs(m.waits, "<")
	pairs(m.listeners, ">")
	for _, id := range slices.Sorted(maps.Keys(m.promises)) {
		if m.armed(id) {
			b = fmt.Appendf(b, "|%s@%d", id, m.promises[id].timeout)
		}
	}
	return string(b)
}
