package machine

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/internal/testkit"
	"perdure/recovery"
)

// A simulation runs a few partitions with clients, workers and carriers of messages, all in one process
// and in an order that is drawn: what is late, repeated, lost or overtaken is up to the draw.
type simulation struct {
	*world
	draw func(n int) int
	book book
	// queue is what waits to be applied, by partition, each with what to do with its reply.
	queue [][]*pending
	roots []string
	// work are the tasks that workers believe they hold; stale those that they have lost and forgot to
	// forget.
	work  []*simWork
	stale []*view
	// cut are executions that something outside has ended or may have.
	cut map[string]bool
	// restarted are the roots that a client has restarted, or tried to.
	restarted map[string]bool
	// sent are the accepted signals of clients: target and name to payload by delivery.
	sent     map[string]map[uint64]string
	payloads int
	signals  simSignals
	names    int
	stats    simStats
	// graphs are what the runs are made of, by their ids.
	graphs map[string]*perdurev1.Graph
	// accounts are the tasks of entities that workers hold.
	accounts []*holding
	// clientIDs are the present ids of clients of the recovery protocol.
	clientIDs int
}

type simStats struct {
	entries, commands, commits, executions, refusedStale, refusedRule, repeated, restarts, delivered, certain, audits int
	operations, clients, cuts                                                                                         int // of entities; cuts that are whole
	restarted, continued, carried, received                                                                           int
	requests                                                                                                          map[string]int // of executions, by what they ask
	protocol                                                                                                          map[string]int // of clients of the recovery protocol
	graphs                                                                                                            graphStats
	sends                                                                                                             sendStats
}

// sendStats count the signals of executions by what became of them: open are those whose sender ended first.
type sendStats struct{ delivered, notFound, finished, open int }

func (s *sendStats) add(o sendStats) {
	s.delivered += o.delivered
	s.notFound += o.notFound
	s.finished += o.finished
	s.open += o.open
}

func (s *simStats) add(o simStats) {
	s.entries += o.entries
	s.commands += o.commands
	s.commits += o.commits
	s.executions += o.executions
	s.refusedStale += o.refusedStale
	s.refusedRule += o.refusedRule
	s.repeated += o.repeated
	s.restarts += o.restarts
	s.delivered += o.delivered
	s.certain += o.certain
	s.audits += o.audits
	s.operations += o.operations
	s.restarted += o.restarted
	s.continued += o.continued
	s.carried += o.carried
	s.received += o.received
	for what, n := range o.requests {
		if s.requests == nil {
			s.requests = map[string]int{}
		}
		s.requests[what] += n
	}
	for what, n := range o.protocol {
		if s.protocol == nil {
			s.protocol = map[string]int{}
		}
		s.protocol[what] += n
	}
	s.clients += o.clients
	s.cuts += o.cuts
	s.graphs.add(o.graphs)
	s.sends.add(o.sends)
}

type pending struct {
	cmd   *commandv1.Command
	reply func(*commandv1.Reply)
}

// simWork is a worker's task, and its commit in flight.
type simWork struct {
	v   *view
	ran map[uint32]uint32
	// cmd was sent and not answered yet; queued says that it is in a queue just now.
	cmd    *commandv1.Command
	queued bool
}

func newSimulation(t tester, draw func(n int) int) *simulation {
	t.Helper()
	s := &simulation{draw: draw, cut: map[string]bool{}, restarted: map[string]bool{}, sent: map[string]map[uint64]string{}, signals: newSimSignals(), graphs: map[string]*perdurev1.Graph{}}
	cached := []int{1, 3, 0}[draw(3)]
	s.world = newWorld(t, []int{1, 2, 3, 3}[draw(4)], func(c *Config) { c.CachedExecutions = cached })
	s.unaudited, s.effectsUnchecked = true, true
	s.stats.requests, s.stats.protocol = map[string]int{}, map[string]int{}
	s.queue = make([][]*pending, len(s.parts))
	for i := range 10 {
		s.roots = append(s.roots, fmt.Sprint("root-", i))
	}
	s.writePool()
	s.registerAccounts()
	return s
}

var simFunctions = []string{"f0", "f1"}

// send puts a command in its partition's queue, now and then twice.
func (s *simulation) send(p int, cmd *commandv1.Command, reply func(*commandv1.Reply)) {
	s.queue[p] = append(s.queue[p], &pending{cmd, reply})
}

// flush applies some of what waits in a partition's queue as one entry, with grants of some workers.
func (s *simulation) flush(p, most int, grants bool) {
	s.t.Helper()
	n := min(most, len(s.queue[p]))
	batch := s.queue[p][:n:n]
	s.queue[p] = s.queue[p][n:]
	entry := &commandv1.Entry{}
	for _, b := range batch {
		entry.Commands = append(entry.Commands, b.cmd)
	}
	if grants {
		for range 1 + s.draw(2) {
			o := grant(fmt.Sprint("w", s.draw(4)), 1+s.draw(3), append(simFunctions, state.FunctionHTTP, "@acc")...)
			o.LeaseMs = int64(1000 + s.draw(15_000))
			entry.Grants = append(entry.Grants, o)
		}
	}
	s.stats.entries++
	s.stats.commands += n
	if s.draw(6) == 0 {
		s.skew = int64(s.draw(5000))
		defer func() { s.skew = 0 }()
	}
	s.effectsUnchecked, s.unaudited = s.stats.entries%7 != 0, s.stats.entries%19 != 0
	if !s.unaudited {
		s.stats.audits++
	}
	former := s.beforeSuccessions(batch)
	res := s.apply(s.parts[p], entry)
	s.afterSuccessions(former, batch, res.Replies)
	for _, a := range res.Effects.Assigned {
		if _, entity := id.EntityOfTask(a.Token.Id); entity {
			s.holdAccount(a)
			continue
		}
		v := &view{worker: a.Worker, token: a.Token}
		if s.over(v.token) {
			s.stale = append(s.stale, v)
			continue
		}
		s.read(v)
		s.work = append(s.work, &simWork{v: v, ran: map[uint32]uint32{}})
	}
	for i, b := range batch {
		if b.reply != nil {
			b.reply(res.Replies[i])
		}
	}
}

func (s *simulation) placed(cmd *commandv1.Command) int { return int(s.at(cmd.Id).cfg.Partition) }

// act does one thing.
func (s *simulation) act() {
	s.t.Helper()
	switch s.draw(39) {
	default:
		s.actWork(true)
	case 0:
		s.actStart()
	case 1, 2, 3, 4, 5, 6, 7, 20, 21, 22:
		p := s.draw(len(s.parts))
		s.flush(p, 1+s.draw(6), s.draw(2) == 0)
	case 8, 9:
		s.now += int64(s.draw([]int{20, 500, 3_000, 30_000}[s.draw(4)]))
	case 10:
		p := s.draw(len(s.parts))
		s.send(p, tickCmd([]uint32{0, 1, 3}[s.draw(3)]), nil)
		s.flush(p, 100, false)
	case 11, 12, 13:
		s.actShip()
	case 14:
		s.actSignal()
	case 15, 16:
		s.actHeartbeat()
	case 17:
		s.actStale()
	case 18:
		p := s.parts[s.draw(len(s.parts))]
		s.open(p)
		s.stats.restarts++
	case 19:
		s.actRare()
	case 30, 31, 32:
		s.actGraph()
	case 33:
		if s.draw(4) == 0 {
			s.actRestart()
		}
	case 34, 35:
		s.actAccount()
	case 36, 37, 38:
		s.actClient()
	}
}

// actStart starts a root, perhaps not for the first time.
func (s *simulation) actStart() {
	objectID := s.roots[s.draw(len(s.roots))]
	program := -1
	for _, p := range s.parts {
		if h, ok, _ := p.state.Get(keys.Of(keys.Header, ns, objectID)); ok && h != nil {
			program = s.programOf(objectID)
		}
	}
	if program < 0 {
		program = s.book.write(s.draw, 2, s.targets())
	}
	cmd := startCmd(s.request(), objectID, "f"+strconv.Itoa(program%2), strconv.Itoa(program))
	if s.draw(8) == 0 {
		cmd.GetStart().TimeoutMs = int64(1 + s.draw(60_000))
		s.cut[objectID] = true
	}
	for range 1 + s.draw(2) {
		s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
			// Two first starts may be in flight at once; then one of them loses.
			if e := wire.ReplyError(r); e != nil && e.Reason != perdurev1.Reason_REASON_ID_CONFLICT {
				s.t.Fatalf("start: %v", e)
			}
		})
	}
}

func (s *simulation) programOf(objectID string) int {
	n, _ := strconv.Atoi(string(s.journal(objectID)[0].Event.GetExecutionStarted().Input))
	return n
}

// actWork lets a worker continue one of its tasks: commit the next step, or repeat the one whose answer was
// lost.
func (s *simulation) actWork(trouble bool) {
	if len(s.work) == 0 {
		return
	}
	i := s.draw(len(s.work))
	k := s.work[i]
	if trouble && s.draw(12) == 0 {
		// The worker dies; a part of it may live on and not know.
		s.work = slices.Delete(s.work, i, i+1)
		s.stale = append(s.stale, k.v)
		return
	}
	if k.queued {
		return
	}
	if k.cmd == nil {
		stop := func() bool { return trouble && s.draw(4) == 0 }
		r, err := s.book.walk(k.v.token.Id, k.v.journal, k.ran, stop)
		if err != nil {
			s.t.Fatalf("worker: %v", err)
		}
		if len(r.c.Events) == 0 && r.c.ContinueAsNew == nil {
			s.t.Fatalf("%s holds %s and has nothing to do:\n%s", k.v.worker, showToken(k.v.token), strings.Join(showEntries(k.v.journal), "\n"))
		}
		r.c.Task, r.c.KnownSeq, k.v.nextChild = k.v.token, uint64(len(k.v.journal)), r.c.NextChild
		k.cmd = wrapCommit(s.request(), r.c)
	}
	k.queued = true
	times := 1
	if trouble && s.draw(6) == 0 {
		times = 2
		s.stats.repeated++
	}
	cmd := k.cmd
	if trouble && s.draw(6) == 0 {
		s.badCommit(cmd)
	}
	for n := range times {
		s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
			k.queued = k.queued && n < times-1
			if trouble && s.draw(8) == 0 || k.cmd != cmd {
				return // the answer is lost, or comes late
			}
			s.answered(k, r)
		})
	}
}

// badCommit sends a commit before another that must be refused at its last event. Nothing of it may be
// left, in the state or in memory, or what follows it would be refused, too.
func (s *simulation) badCommit(good *commandv1.Command) {
	bad := proto.Clone(good).(*commandv1.Command)
	bad.Request.Id = s.request()
	c := bad.GetCommit()
	c.Events = append(c.Events, completed("nobody:0", 1, value("x")))
	s.send(s.placed(bad), bad, func(r *commandv1.Reply) {
		switch e := wire.ReplyError(r); {
		case e == nil && r.GetCommit().Status == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING:
			// There what is new is left out, not refused.
		case e == nil && r.GetCommit().Status == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED && r.GetCommit().State == perdurev1.TaskState_TASK_STATE_FULFILLED:
			// Its message has ended its graph run and itself: the rest is void.
		case e == nil || e.Reason != perdurev1.Reason_REASON_RULE_BROKEN && e.Reason != perdurev1.Reason_REASON_STALE_TASK:
			s.t.Fatalf("a commit that breaks a rule is answered with %v\n%v", r, bad)
		default:
			s.stats.refusedRule++
		}
	})
}

// over reports whether an execution is another incarnation by now, or gone with the attempt of its caller
// that started it.
func (s *simulation) over(token *perdurev1.TaskToken) bool {
	b, ok, _ := s.at(token.Id).m.State().Get(keys.Of(keys.Header, ns, token.Id))
	h, err := state.DecodeHeader(b)
	return !ok || err != nil || h.Incarnation != token.Incarnation
}

// answered lets a worker learn from the answer to its commit.
func (s *simulation) answered(k *simWork, r *commandv1.Reply) {
	s.t.Helper()
	s.stats.commits++
	drop := func() {
		if i := slices.Index(s.work, k); i >= 0 {
			s.work = slices.Delete(s.work, i, i+1)
		}
		s.stale = append(s.stale, k.v)
	}
	if e := wire.ReplyError(r); e != nil {
		if e.Reason != perdurev1.Reason_REASON_STALE_TASK {
			s.t.Fatalf("%s commits to %s: %v\n%v", k.v.worker, showToken(k.v.token), e, k.cmd)
		}
		drop()
		return
	}
	if r.GetCommit().State != acquired || s.over(k.v.token) {
		drop()
		return
	}
	cmd := k.cmd
	k.cmd = nil
	if r.GetCommit().Status >= perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		s.read(k.v)
		return
	}
	// The answer may be older than the journal is by now: the copy must be its beginning.
	s.learn(k.v, cmd.GetCommit(), r.GetCommit())
}

func (s *simulation) actHeartbeat() {
	if len(s.work) == 0 {
		return
	}
	k := s.work[s.draw(len(s.work))]
	if s.draw(5) == 0 {
		// A worker gives a task back.
		if !k.queued {
			cmd := releaseCmd(k.v.token, "problem", int64(s.draw(3)*s.draw(5000)))
			s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
				if e := wire.ReplyError(r); e != nil && e.Reason != perdurev1.Reason_REASON_STALE_TASK {
					s.t.Fatalf("release: %v", e)
				}
			})
			s.work = slices.DeleteFunc(s.work, func(o *simWork) bool { return o == k })
			s.stale = append(s.stale, k.v)
		}
		return
	}
	cmd := heartbeatCmd(k.v.worker, k.v.token)
	for n := k.v.nextChild - min(k.v.nextChild, 2); n <= k.v.nextChild+1; n++ {
		cmd.GetHeartbeat().Steps = append(cmd.GetHeartbeat().Steps, stepBeat(k.v, n, "s", "progress").GetHeartbeat().Steps...)
	}
	s.send(int(s.at(k.v.token.Id).cfg.Partition), cmd, func(r *commandv1.Reply) {
		if len(r.GetHeartbeat().Lost) > 0 && !k.queued {
			s.work = slices.DeleteFunc(s.work, func(o *simWork) bool { return o == k })
			s.stale = append(s.stale, k.v)
		}
	})
}

// actStale lets a worker act on a task that it has lost. The action must have no effect.
func (s *simulation) actStale() {
	s.t.Helper()
	if len(s.stale) == 0 {
		return
	}
	v := s.stale[s.draw(len(s.stale))]
	p := s.at(v.token.Id)
	if task, ok := p.m.txn.store(ns).Task(v.token.Id); ok && task.Version == v.token.Version && task.State == recovery.TaskAcquired {
		return // no command has expired it yet: it is not stale
	}
	c, err := ops(v.token.Id, v.nextChild, []string{"step stolen -> x", "return stolen", "child f0 0; wait s", "cancelled stolen", "nothing"}[s.draw(5)])
	if err != nil {
		s.t.Fatalf("%v", err)
	}
	c.Task, c.NextChild, c.KnownSeq = v.token, v.nextChild, uint64(s.draw(9))
	cmd := wrapCommit(s.request(), c)
	if s.draw(4) == 0 {
		cmd = releaseCmd(v.token, "stolen", 0)
	}
	s.settleExpired(p)
	s.refused(cmd, perdurev1.Reason_REASON_STALE_TASK)
	s.stats.refusedStale++
}

func (s *simulation) actShip() {
	s.t.Helper()
	src, dst := s.draw(len(s.parts)), s.draw(len(s.parts))
	cmd := s.deliverCmd(src, dst, 1+s.draw(4))
	if src == dst || len(cmd.GetDeliver().Messages) == 0 {
		return
	}
	s.actCut(dst, cmd)
	for range 1 + s.draw(2) {
		s.send(dst, proto.Clone(cmd).(*commandv1.Command), func(r *commandv1.Reply) {
			// One that comes after a later one of its channel finds nothing to do; one that leaves a gap is
			// not made here.
			if e := wire.ReplyError(r); e != nil {
				s.t.Fatalf("deliver: %v", e)
			}
			s.stats.delivered++
			if s.draw(2) == 0 {
				trim := trimCmd(uint32(dst), cmd.GetDeliver(), r.GetDeliver())
				s.actCut(src, trim)
				s.send(src, trim, nil)
			}
		})
	}
}

// actSignal sends a signal to an open execution, perhaps twice with one request id.
func (s *simulation) actSignal() {
	open := s.openExecutions()
	if len(open) == 0 {
		return
	}
	s.signal(open[s.draw(len(open))], string("ab"[s.draw(2)]), 1+s.draw(2))
}

func (s *simulation) signal(target, name string, times int) {
	s.payloads++
	payload := fmt.Sprint("payload-", s.payloads)
	s.signals.of[payload] = target + " " + name
	cmd := signalCmd(s.request(), target, name, payload)
	answered := false
	for n := range times {
		cmd := proto.Clone(cmd).(*commandv1.Command)
		cmd.Request.AgeMs = uint64(n)
		s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
			if e := wire.ReplyError(r); e != nil {
				// A child may be gone with the incarnation of its parent.
				gone := e.Reason == perdurev1.Reason_REASON_EXECUTION_NOT_FOUND && id.Origin(target) != target
				if e.Reason != perdurev1.Reason_REASON_ALREADY_FINISHED && !gone {
					s.t.Fatalf("signal: %v", e)
				}
				return
			}
			if answered {
				return // the same answer again, perhaps to a later incarnation, which was sent nothing
			}
			answered = true
			s.signalAccepted(target, payload)
			if s.renumbered(target) {
				return
			}
			key := s.incarnationName(target) + " " + name
			if s.sent[key] == nil {
				s.sent[key] = map[uint64]string{}
			}
			s.sent[key][r.GetSignal().DeliveryId] = payload
		})
	}
}

// openExecutions lists what has not ended, in all partitions.
func (s *simulation) openExecutions() (ids []string) {
	for _, p := range s.parts {
		prefix := keys.VisibilityPrefix(ns, keys.Open)
		_ = p.state.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
			if _, objectID, err := keys.ParseVisibility(key, prefix); err == nil {
				ids = append(ids, objectID)
			}
			return true
		})
	}
	return ids
}

// actRare does what happens seldom: it ends executions from outside, makes standalone promises, asks.
func (s *simulation) actRare() {
	s.t.Helper()
	open := s.openExecutions()
	switch choice := s.draw(8); {
	case choice < 2 && len(open) > 0:
		cmd := cancelCmd(open[s.draw(len(open))], "by the draw", int64(s.draw(20_000)))
		s.cut[cmd.Id] = true
		s.send(s.placed(cmd), cmd, nil)
	case choice == 2 && len(open) > 0:
		cmd := terminateCmd(open[s.draw(len(open))], "by the draw")
		s.cut[cmd.Id] = true
		s.send(s.placed(cmd), cmd, nil)
	case choice == 3:
		s.names++
		cmd := createPromiseCmd(fmt.Sprint("bare-", s.names%5), int64(1+s.draw(30_000)))
		s.send(s.placed(cmd), cmd, nil)
	case choice == 4:
		cmd := settlePromiseCmd(fmt.Sprint("bare-", s.draw(5)), resolve, "v")
		s.send(s.placed(cmd), cmd, nil)
	case choice == 5:
		// Impossible requests, which must change nothing.
		s.refused(startCmd(s.request(), "a:0", "f0", "0"), perdurev1.Reason_REASON_BAD_ID)
		s.refused(signalCmd(s.request(), "never-started", "a", ""), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	case choice == 6:
		s.effectsUnchecked, s.unaudited = false, false
		s.lead(s.parts[s.draw(len(s.parts))], uint32(s.draw(3)))
	default:
		for _, objectID := range open {
			if got := s.describe(objectID); got.WakeSource == "stuck" || got.WakeSource == "" {
				s.t.Fatalf("%s is stuck: %v", objectID, got)
			}
		}
	}
}

// finish runs everything to its end: no more faults, and a signal for every open signal wait.
func (s *simulation) finish() {
	s.t.Helper()
	for round := range 4000 {
		s.ship()
		for p := range s.parts {
			s.flush(p, 1<<30, true)
		}
		for range 2 * len(s.work) {
			s.actWork(false)
		}
		for _, h := range s.accounts {
			s.commitAccount(h, 64)
		}
		s.accounts = nil
		for p := range s.parts {
			s.flush(p, 1<<30, true)
		}
		s.ship()
		open := s.openExecutions()
		if len(open) == 0 && len(s.work) == 0 && s.accountsIdle() {
			return
		}
		for _, objectID := range open {
			if e := s.describe(objectID); e.Waiting.GetKind() == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
				s.signal(objectID, e.Waiting.SignalName, 1)
			} else if e.Function == state.FunctionGraph {
				s.signalNodes(objectID)
			}
		}
		s.now += int64(500 + 1000*(round%20))
		s.tick()
	}
	var left []string
	for _, objectID := range s.openExecutions() {
		left = append(left, showExecution(s.describe(objectID)))
	}
	s.t.Fatalf("not finished:\n%s", strings.Join(left, "\n"))
}

// targets are whom executions send signals to: some are never there.
func (s *simulation) targets() []string {
	return append(slices.Clone(s.roots), "nobody-0", "nobody-1", "nobody-2")
}

// simulate runs one simulation of so many actions.
func simulate(t tester, draw func(n int) int, actions int) *simulation {
	t.Helper()
	s := newSimulation(t, draw)
	for range actions {
		s.act()
	}
	s.finish()
	s.verifyGraphs()
	s.stats.cuts = s.checkCuts()
	// Failed runs are retried, under the same faults.
	for range 2 {
		s.retryGraphs()
		for range actions / 10 {
			s.act()
		}
		s.finish()
		s.verifyGraphs()
	}
	s.verify()
	return s
}

// TestSimulation runs many, and says how much that was.
func TestSimulation(t *testing.T) {
	var total simStats
	runs := 0
	actions := testkit.Choose(400, 500, 700)
	testkit.Checks(t, testkit.Choose(50, 12, 140)) // of which -short tries a fifth
	rapid.Check(t, func(t *rapid.T) {
		s := simulate(t, drawn(t), actions)
		total.add(s.stats)
		runs++
	})
	// Few runs may not see all there is to see; these do.
	for seed := int64(1); runs < 20 || seed <= 10; seed++ {
		total.add(simulate(t, seeded(seed), actions).stats)
		runs++
	}
	t.Logf("%d runs: %+v", runs, total)
	for _, what := range []string{"ecall", "etell", "lock", "unlock", "cancel"} {
		if total.requests[what] == 0 {
			t.Errorf("no execution of the simulation has a %s: %+v", what, total.requests)
		}
	}
	for _, what := range simClientKinds {
		if total.protocol[what] == 0 {
			t.Errorf("no client of the simulation comes to %s: %+v", what, total.protocol)
		}
	}
	if total.restarted == 0 || total.continued == 0 || total.carried == 0 {
		t.Errorf("the simulation has %d restarts and %d roots that continue as new, with %d signals carried over", total.restarted, total.continued, total.carried)
	}
	if total.operations == 0 || total.clients == 0 {
		t.Errorf("the simulation has no operations of entities: %+v", total)
	}
	if total.cuts == 0 {
		t.Errorf("the simulation has no cut that is whole: %+v", total)
	}
	if total.certain == 0 || total.refusedStale == 0 || total.refusedRule == 0 || total.delivered == 0 || total.restarts == 0 || total.repeated == 0 {
		t.Errorf("the simulation does not do what it is for: %+v", total)
	}
	if n := total.sends; n.delivered == 0 || n.notFound == 0 || n.finished == 0 || n.open == 0 {
		t.Errorf("the simulation never has a send that comes to one of its ends: %+v", n)
	}
	if lacks := total.graphs.lacks(); lacks != "" {
		t.Errorf("the simulation never has %s: %+v", lacks, total.graphs)
	}
}

// seeded draws from a seed: for tests that need the same run again.
func seeded(seed int64) func(n int) int {
	return rand.New(rand.NewSource(seed)).Intn
}
