package machine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// tester is what *testing.T, *testing.B and *rapid.T have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

const ns = "default"

// A world is a cluster in one process: every partition with its state, and the workers with their received
// journals. After every apply it checks the effects against the change of the state, and the state against
// every rule (audit).
type world struct {
	t     tester
	now   int64
	parts []*part
	views map[viewKey]*view
	// unaudited skips the audit of the whole state after every entry, for long runs.
	unaudited bool
	// effectsUnchecked skips the comparison of effects and state.
	effectsUnchecked bool
	// firsts counts the tasks that were assigned with a First.
	firsts int
	// commands is how many the last entry had.
	commands int
	requests uint64
	// level is the feature level that the first entry of each partition raises its state to.
	level uint64
	// skew is how far the leader's clock is behind.
	skew int64
	// cuts are the checkpoints of each cut by partition.
	cuts map[uint64]map[uint32]*state.MemReader
	// applied is called after each entry, unless it is nil.
	applied func(p *part, entry *commandv1.Entry, res *Result)
}

// A part is one partition: what a replica of it would hold.
type part struct {
	cfg   Config
	m     *Machine
	state *state.MemReader
	index uint64
	// log is the partition's log as bytes, entry i+1 at i; results are what applying it gave.
	log     [][]byte
	results []*Result
	// search is a leader's search for deadlines, which gets each entry's NextExpiration.
	search query.DeadlineSearch
	// cleanups are the clean-ups that were open after the entry at cleanupsAt.
	cleanups   map[string]state.Header
	cleanupsAt uint64
}

func newWorld(t tester, partitions int, change ...func(*Config)) *world {
	t.Helper()
	return newWorldAt(t, state.FeatureLevel, partitions, change...)
}

// newWorldAt is newWorld with states of another feature level.
func newWorldAt(t tester, level uint64, partitions int, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, now: 1000, views: map[viewKey]*view{}, level: level}
	for n := range partitions {
		cfg := Config{Partition: uint32(n), Partitions: uint32(partitions), CheckInvariants: true, aheadLeast: 1}
		for _, f := range change {
			f(&cfg)
		}
		p := &part{cfg: cfg, state: state.NewMemReader()}
		w.parts = append(w.parts, p)
		w.open(p)
	}
	return w
}

// raise raises the feature level of a partition, as its leader does when every member knows the level.
func (w *world) raise(p *part, level uint64) {
	w.t.Helper()
	w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{raiseLevelCmd(level)}})
}

// open creates a partition's machine over its state again, as a replica does at its start.
func (w *world) open(p *part) {
	w.t.Helper()
	m, err := New(p.cfg, p.state)
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	p.m = m
}

func (w *world) at(objectID string) *part {
	return w.parts[state.PartitionOf(ns, objectID, uint32(len(w.parts)))]
}

// request makes a new request id.
func (w *world) request() []byte {
	w.requests++
	return fmt.Appendf(nil, "request-%08d", w.requests)
}

// apply applies one entry to a partition at the world's time, and makes its writes part of the state.
func (w *world) apply(p *part, entry *commandv1.Entry) *Result {
	w.t.Helper()
	entry.TimeMs = w.now - w.skew
	raises := p.index == 0 && w.level > state.LevelFirst
	if raises {
		entry = proto.CloneOf(entry)
		entry.Commands = append([]*commandv1.Command{raiseLevelCmd(w.level)}, entry.Commands...)
	}
	raw, err := state.Deterministic.Marshal(entry)
	if err != nil {
		w.t.Fatalf("marshal: %v", err)
	}
	decoded := &commandv1.Entry{}
	if err := proto.Unmarshal(raw, decoded); err != nil {
		w.t.Fatalf("unmarshal: %v", err)
	}
	before := p.state.Clone()
	w.commands = len(entry.Commands)
	p.index++
	res, err := p.m.Apply(p.index, decoded)
	if err != nil {
		w.t.Fatalf("apply %v: %v", entry, err)
	}
	if n := len(p.m.reads.ahead); n > 0 {
		w.t.Errorf("after an entry %d journals are still read ahead", n)
	}
	p.state.Apply(p.m.Writes())
	p.m.Committed()
	p.log, p.results = append(p.log, raw), append(p.results, res)
	if raises {
		shown := *res
		shown.Replies = shown.Replies[1:]
		res = &shown
	}
	if p.m.importing == 0 {
		w.checkFronts(p, res)
	}
	w.checkCut(before, p, res)
	if !w.effectsUnchecked {
		w.checkEffects(before, p, res)
	}
	if !w.unaudited {
		w.audit(p)
	}
	if w.applied != nil {
		w.applied(p, entry, res)
	}
	return res
}

// one applies one command where it belongs and returns its reply, which may be a refusal.
func (w *world) one(cmd *commandv1.Command) *commandv1.Reply {
	w.t.Helper()
	p := w.parts[0]
	if cmd.Id != "" {
		p = w.at(cmd.Id)
	}
	return w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{cmd}}).Replies[0]
}

// do is one, for a command that must not be refused.
func (w *world) do(cmd *commandv1.Command) *commandv1.Reply {
	w.t.Helper()
	reply := w.one(cmd)
	if e := wire.ReplyError(reply); e != nil {
		w.t.Fatalf("%v: %v", cmd, e)
	}
	return reply
}

// refused applies a command that must be refused, and checks that it left nothing but what was due.
func (w *world) refused(cmd *commandv1.Command, reason perdurev1.Reason) *api.Error {
	w.t.Helper()
	p := w.parts[0]
	if cmd.Id != "" {
		p = w.at(cmd.Id)
	}
	w.settleExpired(p)
	before := content(p.state)
	e := wire.ReplyError(w.one(cmd))
	if e == nil || e.Reason != reason {
		w.t.Fatalf("%v: answered %v, must be refused with %v", cmd, e, reason)
	}
	if after := content(p.state); before != after {
		w.t.Fatalf("%v: refused (%v), and yet the state has changed:\n%s", cmd, e, difference(before, after))
	}
	return e
}

// settleExpired runs all expirations of a partition.
func (w *world) settleExpired(p *part) {
	w.t.Helper()
	for range 1000 {
		at, ok, err := query.NextExpiration(p.state)
		if err != nil {
			w.t.Fatalf("next due: %v", err)
		}
		if !ok || at > w.now {
			return
		}
		w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}})
	}
	w.t.Fatalf("there is no end to what is due")
}

// tick runs all expirations of all partitions.
func (w *world) tick() {
	w.t.Helper()
	for _, p := range w.parts {
		w.settleExpired(p)
	}
}

// ship carries all messages of all channels to their destinations, until none is left.
func (w *world) ship() {
	w.t.Helper()
	for moved := true; moved; {
		moved = false
		for src, p := range w.parts {
			dsts, err := query.Destinations(p.state, uint32(len(w.parts)))
			if err != nil {
				w.t.Fatalf("destinations: %v", err)
			}
			for _, dst := range dsts {
				moved = true
				w.shipOne(src, int(dst), 100)
			}
		}
	}
}

// shipOne delivers up to limit messages of one channel, and trims them.
func (w *world) shipOne(src, dst, limit int) {
	w.t.Helper()
	cmd := w.deliverCmd(src, dst, limit)
	w.enterRequired(w.parts[dst], cmd)
	reply := w.apply(w.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{cmd}}).Replies[0]
	if e := wire.ReplyError(reply); e != nil {
		w.t.Fatalf("deliver: %v", e)
	}
	trim := trimCmd(uint32(dst), cmd.GetDeliver(), reply.GetDeliver())
	w.enterRequired(w.parts[src], trim)
	w.apply(w.parts[src], &commandv1.Entry{Commands: []*commandv1.Command{trim}})
}

func (w *world) deliverCmd(src, dst, limit int) *commandv1.Command {
	w.t.Helper()
	epoch, msgs, err := query.Outgoing(w.parts[src].state, uint32(dst), state.Channel{}, limit, 1<<30)
	if err != nil {
		w.t.Fatalf("outgoing: %v", err)
	}
	return &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{
		Source: uint32(src), Epoch: epoch, Messages: msgs}}}
}

// query asks a partition's state.
func (w *world) query(q *commandv1.Query) *commandv1.QueryReply {
	w.t.Helper()
	q.Namespace = ns
	p := w.parts[0]
	if q.Id != "" {
		p = w.at(q.Id)
	}
	reply, err := query.Answer(p.state, p.cfg.Partition, q)
	if err != nil {
		w.t.Fatalf("query %v: %v", q, err)
	}
	return reply
}

func (w *world) describe(objectID string) *perdurev1.Execution {
	w.t.Helper()
	reply := w.query(&commandv1.Query{Id: objectID, Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}})
	if e := wire.QueryError(reply); e != nil {
		w.t.Fatalf("describe %s: %v", objectID, e)
	}
	return reply.GetDescribe().Execution
}

func (w *world) promise(objectID string) *perdurev1.Promise {
	w.t.Helper()
	reply := w.query(&commandv1.Query{Id: objectID, Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}})
	if e := wire.QueryError(reply); e != nil {
		w.t.Fatalf("promise %s: %v", objectID, e)
	}
	return reply.GetPromise().Promise
}

// journal reads a whole journal, page by page.
func (w *world) journal(objectID string) []*perdurev1.JournalEntry {
	w.t.Helper()
	var all []*perdurev1.JournalEntry
	for {
		reply := w.query(&commandv1.Query{Id: objectID, Kind: &commandv1.Query_Journal{
			Journal: &perdurev1.JournalRequest{FromSeq: uint64(len(all)), Limit: 7}}})
		if e := wire.QueryError(reply); e != nil {
			w.t.Fatalf("journal %s: %v", objectID, e)
		}
		all = append(all, reply.GetJournal().Entries...)
		if uint64(len(all)) >= reply.GetJournal().NextSeq {
			return all
		}
	}
}

// kinds is a journal as the names of its events, for comparing its course.
func (w *world) kinds(objectID string) string {
	w.t.Helper()
	var out []string
	for _, e := range w.journal(objectID) {
		ev := strings.Fields(showEvent(e.Event))
		out = append(out, ev[0])
	}
	return strings.Join(out, " ")
}

// content is a whole state as text, but for what every entry changes (index, clock) and for what only
// follows the rest (checksum).
func content(r state.Reader) string {
	var b bytes.Buffer
	skip := []string{state.MetaApplied, state.MetaClock, state.MetaChecksum, state.MetaFeature}
	_ = r.Scan(nil, nil, func(key, value []byte) bool {
		if keys.Family(key[0]) == keys.Meta && slices.Contains(skip, string(key[1:])) {
			return true
		}
		fmt.Fprintf(&b, "%q = %q\n", key, value)
		return true
	})
	return b.String()
}

// whole is a whole state as text, nothing left out.
func whole(r state.Reader) string {
	var b bytes.Buffer
	_ = r.Scan(nil, nil, func(key, value []byte) bool {
		fmt.Fprintf(&b, "%q = %q\n", key, value)
		return true
	})
	return b.String()
}

// difference shows the lines that only one of two texts has.
func difference(before, after string) string {
	b, a := strings.Split(before, "\n"), strings.Split(after, "\n")
	var out []string
	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

// checkEffects compares the effects of an entry with what it did to the state: a leader that acts on
// them alone must not miss anything.
func (w *world) checkEffects(before *state.MemReader, p *part, res *Result) {
	w.t.Helper()
	had, hadOK, _ := query.NextExpiration(before)
	has, hasOK, _ := query.NextExpiration(p.state)
	if fx := res.Effects.NextExpiration; hasOK && (!hadOK || has < had) && (fx == 0 || fx > has) {
		w.t.Fatalf("the earliest deadline is %d now (before: %d, %v), the effects say %d", has, had, hadOK, fx)
	}
	was, is := settledIn(before), settledIn(p.state)
	for _, objectID := range is {
		if !slices.Contains(was, objectID) && !slices.Contains(res.Effects.Settled, state.Ref{Namespace: ns, ID: objectID}) {
			w.t.Fatalf("promise %q was settled, the effects do not say so", objectID)
		}
	}
	for q, n := range p.m.ready {
		if count(p.state, keys.Of(keys.Ready, q.Namespace, q.Target())) != n {
			w.t.Fatalf("queue %v: %d in memory, %d in the state", q, n, count(p.state, keys.Of(keys.Ready, q.Namespace, q.Target())))
		}
		_ = p.state.Scan(keys.Of(keys.Ready, q.Namespace, q.Target()), keys.After(keys.Of(keys.Ready, q.Namespace, q.Target())), func(key, _ []byte) bool {
			if _, old, _ := before.Get(key); !old && !slices.Contains(res.Effects.Ready, q) {
				w.t.Fatalf("queue %v has got a task, the effects do not say so", q)
			}
			return true
		})
	}
	queues, err := query.ReadyQueues(p.state)
	if err != nil || len(queues) != len(p.m.ready) {
		w.t.Fatalf("queues %v in the state, %v in memory (%v)", queues, p.m.ready, err)
	}
	for dst := range w.parts {
		prefix, sent := keys.Number(keys.Outbox, uint32(dst)), false
		_ = p.state.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
			_, old, _ := before.Get(key)
			sent = sent || !old
			return true
		})
		if shown := slices.Contains(res.Effects.Outbox, uint32(dst)); shown != sent {
			w.t.Fatalf("new messages for partition %d: %v, the effects say %v", dst, sent, shown)
		}
	}
	for _, a := range res.Effects.Assigned {
		asked := &commandv1.TaskQuery{Incarnation: a.Token.Incarnation, Version: a.Token.Version}
		if a.First != nil && a.First.waited != nil {
			asked.FromSeq = a.First.waited.from + uint64(w.firsts)%uint64(len(a.First.waited.entries)) // a worker may have some of them
		}
		q := &commandv1.Query{Namespace: a.Token.Namespace, Id: a.Token.Id, Kind: &commandv1.Query_Task{Task: asked}}
		reply, err := query.Answer(p.state, 0, q)
		if err != nil || wire.QueryError(reply) != nil || reply.GetTask().Function != a.Function {
			w.t.Fatalf("assigned %v, and the state says %v, %v", a, reply, err)
		}
		if a.First != nil {
			w.firsts++
			got, want := a.First.Task(a.Token, asked.FromSeq), reply.GetTask()
			// It is as of the acquisition: what tasks that are taken after it, in the same entry, write to its journal comes later.
			for n := len(want.Entries); n > 0 && want.NextSeq > got.GetNextSeq() && want.Entries[n-1].TimeMs == p.m.Clock(); n-- {
				want.Entries, want.NextSeq = want.Entries[:n-1], want.NextSeq-1
			}
			if !proto.Equal(got, want) {
				w.t.Fatalf("the task from memory is %v, and the state has %v", got, want)
			}
		}
	}
}

// checkFronts compares what is found by searches that do not begin at the front with all there is.
func (w *world) checkFronts(p *part, res *Result) {
	w.t.Helper()
	earliest, any := state.Never, false
	prefix := []byte{byte(keys.Deadline)}
	_ = p.state.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		kind, at, _, objectID, err := keys.ParseDeadline(key)
		if err != nil || p.m.deadlines[kind] > at {
			w.t.Fatalf("a deadline of kind %d of %q at %d, ticks look from %d on (%v)", kind, objectID, at, p.m.deadlines[kind], err)
		}
		if at <= state.Never {
			earliest, any = min(earliest, at), true
		}
		return true
	})
	if at, ok, err := p.search.Next(p.state, res.Effects.NextExpiration); err != nil || ok != any || ok && at != earliest {
		w.t.Fatalf("the earliest deadline is %d (%t), a search that goes on finds %d (%t, %v)", earliest, any, at, ok, err)
	}
	for dst := range w.parts {
		prefix, first := keys.Number(keys.Outbox, uint32(dst)), keys.After(keys.Number(keys.Outbox, uint32(dst)))
		_ = p.state.Scan(prefix, first, func(key, _ []byte) bool {
			first = bytes.Clone(key)
			return false
		})
		if front, err := state.OutboxFront(p.state, uint32(dst)); err != nil || bytes.Compare(front, first) > 0 {
			w.t.Fatalf("the outbox for %d begins at %x, is read from %x on (%v)", dst, first, front, err)
		}
	}
}

func settledIn(r *state.MemReader) (ids []string) {
	prefix := keys.Of(keys.Promise, ns)
	_ = r.Scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		if p, err := recovery.DecodePromise(value); err == nil && p.State.Settled() {
			ids = append(ids, p.ID)
		}
		return true
	})
	return ids
}

func count(r *state.MemReader, prefix []byte) (n int) {
	_ = r.Scan(prefix, keys.After(prefix), func(_, _ []byte) bool {
		n++
		return true
	})
	return n
}

// Commands.

func tickCmd(limit uint32) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{Limit: limit}}}
}

func assignCmd() *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Assign{Assign: &commandv1.Assign{}}}
}

func startCmd(request []byte, objectID, function, input string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Request: &perdurev1.RequestID{Id: request},
		Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{
			Id: objectID, Function: function, Input: []byte(input), AllowUnknownFunction: true}}}
}

func signalCmd(request []byte, objectID, name, payload string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Request: &perdurev1.RequestID{Id: request},
		Kind: &commandv1.Command_Signal{Signal: &perdurev1.SignalRequest{Id: objectID, Name: name, Payload: []byte(payload)}}}
}

func cancelCmd(objectID, reason string, graceMS int64) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Kind: &commandv1.Command_Cancel{
		Cancel: &perdurev1.CancelRequest{Id: objectID, Reason: reason, GraceMs: graceMS}}}
}

func terminateCmd(objectID, reason string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Kind: &commandv1.Command_Terminate{
		Terminate: &perdurev1.TerminateRequest{Id: objectID, Reason: reason}}}
}

func registerCmd(functions ...string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Kind: &commandv1.Command_RegisterFunctions{
		RegisterFunctions: &commandv1.RegisterFunctions{Functions: functions}}}
}

func createPromiseCmd(objectID string, timeoutMS int64) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Kind: &commandv1.Command_CreatePromise{
		CreatePromise: &perdurev1.CreatePromiseRequest{Id: objectID, TimeoutMs: timeoutMS, Param: []byte("param"),
			Tags: map[string]string{"b": "2", "a": "1"}}}}
}

func settlePromiseCmd(objectID string, below perdurev1.PromiseState, value string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: objectID, Kind: &commandv1.Command_SettlePromise{
		SettlePromise: &perdurev1.SettlePromiseRequest{Id: objectID, State: below,
			Value: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(value)}}}}}
}

func raiseLevelCmd(level uint64) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: level}}}
}

func heartbeatCmd(worker string, tokens ...*perdurev1.TaskToken) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_Heartbeat{Heartbeat: &commandv1.Heartbeat{Worker: worker, Tasks: tokens}}}
}

func releaseCmd(token *perdurev1.TaskToken, problem string, delayMS int64) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: token.Id, Kind: &commandv1.Command_Release{
		Release: &perdurev1.Release{Task: token, Problem: problem, DelayMs: delayMS}}}
}

func grant(worker string, credit int, functions ...string) *commandv1.Grant {
	return &commandv1.Grant{Worker: worker, Namespace: ns, Functions: functions, Credit: uint32(credit), LeaseMs: 10_000}
}
