package machine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/internal/testkit"
)

func signalEntityCmd(request []byte, entityID, operation, input string, delay int64) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: entityID, Request: &perdurev1.RequestID{Id: request}, Kind: &commandv1.Command_SignalEntity{
		SignalEntity: &perdurev1.SignalEntityRequest{Id: entityID, Operation: operation, Input: []byte(input), DelayMs: delay}}}
}

func callEntityCmd(request []byte, entityID, operation, input string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: entityID, Request: &perdurev1.RequestID{Id: request}, Kind: &commandv1.Command_CallEntity{
		CallEntity: &perdurev1.CallEntityRequest{Id: entityID, Operation: operation, Input: []byte(input)}}}
}

// holding is a worker's hold of an entity's task: the token, and the batch that it runs.
type holding struct {
	worker string
	token  *perdurev1.TaskToken
	batch  *perdurev1.EntityBatch
}

// takeEntity gives a worker the task of an entity in a partition; nil if none is pending.
func (w *world) takeEntity(p *part, worker string, lease int64) *holding {
	w.t.Helper()
	o := grant(worker, 1, "@acc")
	o.LeaseMs = lease
	res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{assignCmd()}, Grants: []*commandv1.Grant{o}})
	if len(res.Effects.Assigned) == 0 {
		return nil
	}
	token := res.Effects.Assigned[0].Token
	reply := w.query(&commandv1.Query{Id: token.Id, Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: token.Incarnation, Version: token.Version}}})
	if e := wire.QueryError(reply); e != nil {
		w.t.Fatalf("task %v: %v", token, e)
	}
	return &holding{worker, token, reply.GetTask().Entity}
}

// commitEntityCmd runs the first n operations of a batch on an account: "add N" fails below 0, "get" answers, "tell E"
// signals another entity and itself, "delete" deletes.
func (w *world) commitEntityCmd(h *holding, n int) *commandv1.Command {
	b := h.batch
	c := &perdurev1.CommitEntity{Task: h.token, Version: b.Version, Lane: b.Lane, Exists: b.Exists, Value: b.Value}
	balance, _ := strconv.Atoi(string(b.Value))
	for _, o := range b.Operations[:min(n, len(b.Operations))] {
		out := value(strconv.Itoa(balance))
		switch o.Name {
		case "add":
			by, _ := strconv.Atoi(string(o.Input))
			if balance+by < 0 {
				out = failure("poor:" + strconv.Itoa(balance))
			} else {
				balance += by
				c.Exists, c.Value = true, []byte(strconv.Itoa(balance))
				out = value(strconv.Itoa(balance))
			}
		case "tell":
			c.Signals = append(c.Signals, &perdurev1.EntitySignal{Id: string(o.Input), Operation: "add", Input: []byte("0")},
				&perdurev1.EntitySignal{Id: b.Id, Operation: "add", Input: []byte("0"), DelayMs: 5})
		case "delete":
			balance, c.Exists, c.Value = 0, false, nil
		}
		c.Results = append(c.Results, &perdurev1.EntityResult{Request: o.Request, Outcome: out})
	}
	return &commandv1.Command{Namespace: ns, Id: h.token.Id, Request: &perdurev1.RequestID{Id: w.request()}, Kind: &commandv1.Command_CommitEntity{CommitEntity: c}}
}

// runEntities runs all operations of all entities until nothing can run.
func (w *world) runEntities() {
	w.t.Helper()
	for _, p := range w.parts {
		for h := w.takeEntity(p, "e1", 1000); h != nil; h = w.takeEntity(p, "e1", 1000) {
			for h.batch != nil {
				h.batch = w.do(w.commitEntityCmd(h, 64)).GetCommitEntity().Next
			}
		}
	}
}

func (w *world) entity(entityID string) *perdurev1.Entity {
	w.t.Helper()
	return w.query(&commandv1.Query{Id: entityID, Kind: &commandv1.Query_Entity{Entity: &perdurev1.GetEntityRequest{}}}).GetEntity().Entity
}

// answer is the result of a client's call.
func (w *world) answer(entityID string, request []byte) string {
	w.t.Helper()
	reply := w.query(&commandv1.Query{Id: id.EntityCall(entityID, fmt.Sprintf("%x", request)), Kind: &commandv1.Query_EntityAnswer{EntityAnswer: &commandv1.EntityAnswerQuery{}}})
	if e := wire.QueryError(reply); e != nil {
		return e.Error()
	}
	if !reply.GetEntityAnswer().Done {
		return ""
	}
	return showOutcome(reply.GetEntityAnswer().Outcome)
}

// bank is a world in which workers serve accounts.
func bank(t tester, partitions int, change ...func(*Config)) *world {
	w := newWorld(t, partitions, change...)
	for _, p := range w.parts {
		w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{registerCmd("@acc", "f")}})
	}
	return w
}

// A client's operations run in order, a failing one changes nothing, repeated requests are one, results are kept for a
// while, and an entity that is deleted leaves nothing behind.
func TestEntityOfClients(t *testing.T) {
	w := bank(t, 1)
	before := content(w.parts[0].state)
	w.do(signalEntityCmd(w.request(), "acc@a", "add", "5", 0))
	request := w.request()
	call := callEntityCmd(request, "acc@a", "add", "-9")
	w.do(call)
	w.do(call)
	w.do(signalEntityCmd(w.request(), "acc@a", "add", "7", 1000))
	if e := w.entity("acc@a"); e.Queued != 2 || e.Scheduled != 1 || e.Exists {
		t.Fatalf("%v", e)
	}
	h := w.takeEntity(w.parts[0], "e1", 500)
	if len(h.batch.Operations) != 2 || w.answer("acc@a", request) != "" {
		t.Fatalf("%v, %q", h.batch, w.answer("acc@a", request))
	}
	commit := w.commitEntityCmd(h, 1)
	next := w.do(commit).GetCommitEntity().Next
	if again := w.do(commit).GetCommitEntity().Next; len(next.GetOperations()) != 1 || again.String() != next.String() {
		t.Fatalf("the next batch is %v, and on repetition %v", next, again)
	}
	w.refused(w.commitEntityCmd(h, 2), perdurev1.Reason_REASON_RULE_BROKEN) // of the version before
	h.batch = next
	if done := w.do(w.commitEntityCmd(h, 9)).GetCommitEntity(); done.Next != nil {
		t.Fatalf("%v", done)
	}
	if got := w.answer("acc@a", request); got != `!poor "5"` {
		t.Fatalf("answered %s", got)
	}
	w.refused(w.commitEntityCmd(h, 1), perdurev1.Reason_REASON_STALE_TASK)
	w.now += 1000
	w.tick()
	w.runEntities()
	if e := w.entity("acc@a"); string(e.Value) != "12" || e.Scheduled != 0 {
		t.Fatalf("%v", e)
	}
	w.do(signalEntityCmd(w.request(), "acc@a", "delete", "", 0))
	w.runEntities()
	w.now += 11 * 60 * 1000
	w.tick()
	if e := w.entity("acc@a"); e.Incarnation != 0 {
		t.Fatalf("%v", e)
	}
	if after := content(w.parts[0].state); strings.ReplaceAll(before, `"\x01evicted"`, "") != before || difference(before, after) != "" && bytes.Contains([]byte(after), []byte("acc@a")) {
		t.Fatalf("it left:\n%s", difference(before, after))
	}
	w.refused(signalEntityCmd(w.request(), "acc", "add", "1", 0), perdurev1.Reason_REASON_BAD_ID)
	w.refused(signalEntityCmd(w.request(), "acc@a", "", "1", 0), perdurev1.Reason_REASON_BAD_REQUEST)
	w.refused(signalEntityCmd(w.request(), "other@a", "add", "1", 0), perdurev1.Reason_REASON_FUNCTION_UNKNOWN)
}

// An operation that loses its worker in every attempt fails, alone: the operations behind it run.
func TestPoisonedOperation(t *testing.T) {
	w := bank(t, 1)
	poison, after := w.request(), w.request()
	w.do(callEntityCmd(poison, "acc@a", "add", "1"))
	w.do(callEntityCmd(after, "acc@a", "add", "2"))
	for attempt := range state.EntityAttempts {
		h := w.takeEntity(w.parts[0], "e1", 500)
		want := 2
		if attempt > 0 {
			want = 1
		}
		if h == nil || len(h.batch.Operations) != want {
			t.Fatalf("attempt %d: %v", attempt, h)
		}
		if attempt == 1 { // given back with a problem
			w.do(releaseCmd(h.token, "cannot", 0))
			continue
		}
		w.now += 600
		w.tick()
	}
	if got := w.answer("acc@a", poison); !strings.HasPrefix(got, "!lost") {
		t.Fatalf("the poisoned call is answered %s", got)
	}
	w.runEntities()
	if got := w.answer("acc@a", after); got != `"2"` {
		t.Fatalf("the next call is answered %s", got)
	}
	// A worker that stops gives its operations back, which is no attempt.
	w.do(signalEntityCmd(w.request(), "acc@a", "add", "1", 0))
	for range 2 * state.EntityAttempts {
		w.do(releaseCmd(w.takeEntity(w.parts[0], "e1", 500).token, "", 0))
	}
	w.runEntities()
	if e := w.entity("acc@a"); string(e.Value) != "3" || e.Failures != 0 {
		t.Fatalf("%v", e)
	}
}

// A critical section excludes others, admits what it may, refuses what it must not, and ends with its execution, by
// whatever path.
func TestSection(t *testing.T) {
	endings := map[string]func(w *world, v *view){
		"unlock":    func(w *world, v *view) { w.commit(v, "unlock") },
		"return":    func(w *world, v *view) { w.commit(v, "return x") },
		"fail":      func(w *world, v *view) { w.commit(v, "fail it broke") },
		"terminate": func(w *world, v *view) { w.do(terminateCmd(v.token.Id, "why")) },
		"cancel": func(w *world, v *view) {
			w.do(cancelCmd(v.token.Id, "why", 1000))
			w.commit(v, "cancelled ok")
		},
		"grace": func(w *world, v *view) {
			w.do(cancelCmd(v.token.Id, "why", 10))
			w.now += 20
			w.tick()
		},
		"deadline": func(w *world, v *view) {
			w.now += 100_000
			w.tick()
		},
	}
	for name, end := range endings {
		for _, partitions := range []int{1, 3} {
			t.Run(fmt.Sprint(name, partitions), func(t *testing.T) {
				w := bank(t, partitions)
				a, b, c := "acc@1", "acc@2", "acc@3"
				start := startCmd(w.request(), "first", "f", "in")
				start.GetStart().TimeoutMs = 90_000
				w.do(start)
				first := w.only("w1", "f")
				w.commit(first, "lock "+b+","+a+"; await 0")
				w.ship()
				first = w.resumed(first)
				second := w.begin("second", "f")
				w.commit(second, "lock "+b+","+c+"; await 0")
				w.ship()
				if e := w.entity(b); e.Lock.GetHolder() != "first" || e.Queued != 1 {
					t.Fatalf("%v", e)
				}
				if got := w.describe("second").WakeSource; got != "locks of acc@2, acc@3" {
					t.Fatalf("second waits for %q", got)
				}
				w.commitRefused(first, "child f", perdurev1.Reason_REASON_RULE_BROKEN, "no_child_in_section")
				again := w.commitCmd(first, "nothing")
				again.GetCommit().ContinueAsNew = &perdurev1.ContinueAsNew{}
				if e := w.refused(again, perdurev1.Reason_REASON_RULE_BROKEN); e.Meta["rule"] != ruleContinue {
					t.Fatalf("continue as new: %v", e)
				}
				w.commitRefused(first, "lock "+c, perdurev1.Reason_REASON_RULE_BROKEN, "no_nested_section")
				w.commitRefused(first, "ecall "+c+" add 1", perdurev1.Reason_REASON_RULE_BROKEN, "call_locked_only")
				w.commitRefused(first, "etell "+a+" add 1", perdurev1.Reason_REASON_RULE_BROKEN, "signal_unlocked_only")
				w.commitRefused(first, "ecall "+a+" add 1; ecall "+a+" add 1", perdurev1.Reason_REASON_RULE_BROKEN, "one_call_per_locked_entity")
				w.commitRefused(first, "ecall "+a+" add 1; unlock", perdurev1.Reason_REASON_RULE_BROKEN, "exit_awaits_calls")
				w.commit(first, "etell "+c+" add 5; ecall "+a+" add 4; step s -> 1; sleep 1; await 2")
				w.do(signalEntityCmd(w.request(), a, "add", "100", 0))
				w.ship()
				w.runEntities()
				w.ship()
				if e := w.entity(a); string(e.Value) != "4" || e.Queued != 1 {
					t.Fatalf("%s under the lock: %v", a, e)
				}
				first = w.resumed(first)
				end(w, first)
				w.ship()
				w.runEntities()
				w.ship()
				if e := w.entity(a); string(e.Value) != "104" || e.Lock != nil {
					t.Fatalf("%s after the section: %v", a, e)
				}
				if e := w.entity(b); e.Lock.GetHolder() != "second" {
					t.Fatalf("%s after the first section: %v", b, e)
				}
				// One that is still asking gives up its place.
				third := w.begin("third", "g")
				w.commit(third, "lock "+a+","+b+"; await 0")
				w.ship()
				w.do(terminateCmd("third", "why"))
				w.ship()
				for _, one := range []string{a, b} {
					if e := w.entity(one); e.Queued != 0 || e.Lock.GetHolder() == "third" {
						t.Fatalf("%s after the one that gave up: %v", one, e)
					}
				}
			})
		}
	}
}

// resumed takes the task of an execution again that was resumed.
func (w *world) resumed(v *view) *view {
	w.t.Helper()
	for _, p := range w.parts {
		for _, got := range w.takeFrom(p, grant("w1", 10, "f")) {
			if got.token.Id == v.token.Id {
				return got
			}
		}
	}
	w.t.Fatalf("%s was not resumed: %v", v.token.Id, w.describe(v.token.Id))
	return nil
}

// TestBankSimulation runs transfers in critical sections over several partitions, with lost workers, late and repeated
// shipments, terminated executions, restarts and entities that signal each other. No audit in between, each a section
// over all accounts, finds money made or lost; in the end nothing is locked and nothing waits. Each partition's log,
// applied again, gives the same checksum. The world audits the state after every entry.
func TestBankSimulation(t *testing.T) {
	for seed := range testkit.Choose[uint64](3, 3, 6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulateBank(t, seed) })
	}
}

func simulateBank(t *testing.T, seed uint64) {
	const accounts, each, runs = 6, 20, 14
	r := rand.New(rand.NewPCG(seed, 1))
	w := bank(t, 3)
	var all []string
	for i := range accounts {
		all = append(all, fmt.Sprint("acc@", i))
		w.do(signalEntityCmd(w.request(), all[i], "add", strconv.Itoa(each), 0))
	}
	w.runEntities()
	// An execution's program, told by the operations that its journal has: transfer or audit.
	program := map[string][]string{}
	for i := range runs {
		runID := fmt.Sprint("run-", i)
		if i%4 == 3 {
			program[runID] = all
		} else {
			from, to := r.IntN(accounts), r.IntN(accounts-1)
			if to >= from {
				to++
			}
			program[runID] = []string{all[from], all[to]}
		}
		w.do(startCmd(w.request(), runID, "f", ""))
	}
	audits, transfers, held := 0, 0, []*holding{}
	turn := func(v *view) {
		of := program[v.token.Id]
		audit := len(of) == accounts
		var answers []*perdurev1.Outcome
		for _, e := range w.journal(v.token.Id) {
			if done := e.Event.GetInvokeCompleted(); done != nil && done.PromiseId != v.token.Id+":0" {
				answers = append(answers, done.Result)
			}
		}
		switch n := v.nextChild; {
		case n == 0:
			w.commit(v, "lock "+strings.Join(of, ",")+"; await 0")
		case n == 1 && audit:
			text := ""
			for _, one := range of {
				text += "ecall " + one + " get x; "
			}
			w.commit(v, text+"all 1,2,3,4,5,6")
		case n == 1:
			w.commit(v, "ecall "+of[0]+" add -7; await 1")
		case n == 2 && answers[0].GetFailure() == nil:
			w.commit(v, "ecall "+of[1]+" add 7; await 2")
		case audit:
			total := 0
			for _, a := range answers {
				balance, err := strconv.Atoi(string(a.GetValue()))
				if err != nil || balance < 0 {
					t.Fatalf("a balance is %v", a)
				}
				total += balance
			}
			if total != accounts*each {
				t.Fatalf("%s counts %d, there is %d", v.token.Id, total, accounts*each)
			}
			audits++
			w.commit(v, "unlock; return ok")
		default:
			if answers[0].GetFailure() == nil {
				transfers++
			}
			if r.IntN(2) == 0 {
				w.commit(v, "unlock; return ok")
			} else {
				w.commit(v, "return ok") // the section ends with it
			}
		}
	}
	open := func() bool {
		for runID := range program {
			if s := w.describe(runID).Status; s == perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING || s == perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED {
				return true
			}
		}
		return false
	}
	for step := 0; ; step++ {
		calm := step > 700
		if calm && !open() || step > 4000 {
			break
		}
		p := w.parts[r.IntN(len(w.parts))]
		switch k := r.IntN(20); {
		case k < 5:
			for _, v := range w.takeFrom(p, grant("w1", 1, "f")) {
				turn(v)
			}
		case k < 9:
			if h := w.takeEntity(p, fmt.Sprint("e", r.IntN(2)), 40); h != nil {
				held = append(held, h)
			}
		case k < 13 && len(held) > 0:
			i := r.IntN(len(held))
			h := held[i]
			held = slices.Delete(held, i, i+1)
			cmd := w.commitEntityCmd(h, 1+r.IntN(4))
			reply := w.one(cmd)
			if e := wire.ReplyError(reply); e != nil {
				if e.Reason != perdurev1.Reason_REASON_STALE_TASK {
					t.Fatalf("commit of %s: %v", h.token.Id, e)
				}
				continue
			}
			if r.IntN(4) == 0 {
				w.do(cmd)
			}
			if h.batch = reply.GetCommitEntity().Next; h.batch != nil {
				held = append(held, h)
			}
		case k == 13 && len(held) > 0 && !calm:
			held = slices.Delete(held, 0, 1) // its worker is lost
		case k < 17:
			src, dst := r.IntN(len(w.parts)), r.IntN(len(w.parts))
			if src == dst {
				continue
			}
			cmd := w.deliverCmd(src, dst, 1+r.IntN(3))
			if len(cmd.GetDeliver().Messages) == 0 {
				continue
			}
			if r.IntN(3) == 0 {
				w.apply(w.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{cmd}}) // the acknowledgement is lost
				continue
			}
			w.shipOne(src, dst, 1+r.IntN(3))
		case k == 17:
			w.now += int64(r.IntN(30))
			w.settleExpired(p)
		case k == 18:
			w.open(p)
		case k == 19 && !calm:
			switch r.IntN(4) {
			case 0:
				// An audit that is terminated moves no money; a transfer might have been half done.
				if victim := "run-3"; w.describe(victim).Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
					w.do(terminateCmd(victim, "chance"))
				}
			case 1:
				w.do(signalEntityCmd(w.request(), all[r.IntN(accounts)], "tell", all[r.IntN(accounts)], int64(r.IntN(2)*20)))
			case 2:
				w.do(callEntityCmd(w.request(), all[r.IntN(accounts)], "get", ""))
			}
		}
	}
	if open() {
		t.Fatalf("runs are still open")
	}
	for range 5 {
		w.now += 100
		w.tick()
		w.ship()
		w.runEntities()
		w.ship()
	}
	total := 0
	for _, one := range all {
		e := w.entity(one)
		balance, _ := strconv.Atoi(string(e.Value))
		total += balance
		if e.Lock != nil || e.Queued != 0 || e.Scheduled != 0 {
			t.Errorf("%v", e)
		}
	}
	if total != accounts*each {
		t.Errorf("%d in all accounts, must be %d", total, accounts*each)
	}
	t.Logf("%d audits, %d transfers", audits, transfers)
	if transfers == 0 || audits == 0 {
		t.Error("no transfer or no audit was made: this test says little")
	}
	for _, p := range w.parts {
		if n := count(p.state, []byte{byte(keys.Holder)}); n != 0 {
			t.Errorf("%d critical sections are left", n)
		}
		again := state.NewMemReader()
		m, err := New(p.cfg, again)
		if err != nil {
			t.Fatal(err)
		}
		for i, raw := range p.log {
			entry := &commandv1.Entry{}
			if err := proto.Unmarshal(raw, entry); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Apply(uint64(i)+1, entry); err != nil {
				t.Fatal(err)
			}
			again.Apply(m.Writes())
			m.Committed()
		}
		if m.Checksum() != p.m.Checksum() {
			t.Errorf("partition %d: the log applied again gives another checksum", p.cfg.Partition)
		}
	}
}
