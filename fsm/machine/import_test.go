package machine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/restore"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/internal/testkit"
)

const restoreName = 7

func importCmd(name uint64, rows ...state.Write) *commandv1.Command {
	in := &commandv1.Import{Restore: name}
	for _, row := range rows {
		in.Rows = append(in.Rows, &commandv1.ImportRow{Key: row.Key, Value: row.Value})
	}
	return &commandv1.Command{Kind: &commandv1.Command_Import{Import: in}}
}

func importDoneCmd(done *commandv1.ImportDone) *commandv1.Command {
	return &commandv1.Command{Kind: &commandv1.Command_ImportDone{ImportDone: done}}
}

// on applies one command to a partition.
func (w *world) on(p *part, cmd *commandv1.Command) *commandv1.Reply {
	w.t.Helper()
	return w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{cmd}}).Replies[0]
}

// imported applies a command of a restore, which must not be refused.
func (w *world) imported(p *part, cmd *commandv1.Command) *commandv1.Reply {
	w.t.Helper()
	reply := w.on(p, cmd)
	if e := wire.ReplyError(reply); e != nil {
		w.t.Fatalf("partition %d: %v: %v", p.cfg.Partition, cmd.Kind, e)
	}
	return reply
}

// planOf plans a restore of a world's states into another number of partitions.
func planOf(t tester, parts []*part, partitions int) (*restore.Plan, [][]state.Write) {
	t.Helper()
	var sources []state.Reader
	for _, p := range parts {
		sources = append(sources, p.state.Clone())
	}
	plan, err := restore.New(sources, uint32(partitions))
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	rows := make([][]state.Write, partitions)
	if err := plan.Rows(func(p uint32, row state.Write) error {
		rows[p] = append(rows[p], row)
		return nil
	}); err != nil {
		t.Fatalf("restore: %v", err)
	}
	return plan, rows
}

// restored replaces the simulation's cluster by one of so many partitions, made of its states as they are: what waits to
// be applied is lost, and all workers with it.
func (s *simulation) restored(partitions int) {
	s.t.Helper()
	plan, rows := planOf(s.t, s.parts, partitions)
	cached := s.parts[0].cfg.CachedExecutions
	fresh := newWorldAt(s.t, s.level, partitions, func(c *Config) { c.CachedExecutions = cached })
	s.parts, s.views, s.queue = fresh.parts, fresh.views, make([][]*pending, partitions)
	for _, k := range s.work {
		s.stale = append(s.stale, k.v)
	}
	s.work, s.accounts = nil, nil
	s.unaudited, s.effectsUnchecked = true, true
	for n, p := range s.parts {
		// Rows come in pieces, in any order, some twice; a replica starts again between them.
		list := rows[n]
		if s.draw(2) == 0 {
			for i := range list {
				j := i + s.draw(len(list)-i)
				list[i], list[j] = list[j], list[i]
			}
		}
		s.imported(p, importCmd(restoreName))
		for at := 0; at < len(list); {
			end := min(at+1+s.draw(40), len(list))
			s.imported(p, importCmd(restoreName, list[at:end]...))
			if at > 0 && s.draw(5) == 0 {
				back := s.draw(at)
				s.imported(p, importCmd(restoreName, list[back:min(back+9, at)]...))
			}
			if s.draw(10) == 0 {
				s.open(p)
			}
			at = end
		}
	}
	for n, p := range s.parts {
		done := importDoneCmd(plan.Done(uint32(n), restoreName))
		for s.imported(p, done).GetImportDone().More {
			if s.draw(3) == 0 {
				s.open(p)
			}
		}
		s.audit(p)
	}
}

// A cluster that stops at any moment goes on as one of another number of partitions: every rule holds in the restored
// states, and every execution comes to the end that it must come to, with no step twice, none lost and no message lost.
func TestRestore(t *testing.T) {
	actions := testkit.Choose(250, 300, 500)
	messages, local, tasks, moved := 0, 0, 0, 0
	run := func(t tester, draw func(n int) int) {
		s := newSimulation(t, draw)
		for range actions/2 + draw(actions) {
			s.act()
		}
		for range 1 + draw(2) {
			into := 1 + draw(5)
			_, rows := planOf(t, s.parts, into)
			for n, list := range rows {
				for _, row := range list {
					switch keys.Family(row.Key[0]) {
					case keys.Outbox:
						messages++
						if fmt.Sprint(row.Key[1:5]) == fmt.Sprint(keys.Number(keys.Outbox, uint32(n))[1:]) {
							local++
						}
					case keys.Deadline:
						if keys.DeadlineKind(row.Key[1]) == keys.DeadlineLease {
							tasks++
						}
					}
				}
			}
			if into != len(s.parts) {
				moved++
			}
			s.restored(into)
			for range actions / 5 {
				s.act()
			}
		}
		s.finish()
		s.verifyGraphs()
		s.verify()
	}
	testkit.Checks(t, testkit.Choose(15, 15, 60))
	rapid.Check(t, func(t *rapid.T) { run(t, drawn(t)) })
	for seed := int64(1); seed <= 10; seed++ {
		run(t, seeded(seed))
	}
	t.Logf("%d messages on their way, %d of them to the sender's own partition, %d leases, %d other numbers of partitions", messages, local, tasks, moved)
	if messages == 0 || local == 0 || tasks == 0 || moved == 0 {
		t.Error("the restores show too little")
	}
}

// An id whose promise is inline in a restored header is not free.
func TestRestoredPromiseIsNotFree(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(w.begin("a", "f"), "return x")
	if !w.isInline("a") {
		t.Fatal("it is not inline")
	}
	plan, rows := planOf(t, w.parts, 1)
	fresh := newWorld(t, 1)
	fresh.unaudited, fresh.effectsUnchecked = true, true
	p := fresh.parts[0]
	fresh.imported(p, importCmd(restoreName, rows[0]...))
	for fresh.imported(p, importDoneCmd(plan.Done(0, restoreName))).GetImportDone().More {
	}
	if p.m.Free(ns, "a") {
		t.Error("its id counts as free")
	}
}

// A partition that is being restored serves nothing, and one that holds anything is not restored.
func TestImportRefusals(t *testing.T) {
	w := newWorld(t, 2)
	w.unaudited, w.effectsUnchecked = true, true
	var here, there string
	for n := 0; here == "" || there == ""; n++ {
		if name := fmt.Sprint("x", n); w.at(name) == w.parts[0] {
			here = name
		} else {
			there = name
		}
	}
	header := func(objectID string) state.Write {
		return state.Write{Key: keys.Of(keys.Remains, ns, objectID), Value: keys.AppendUint64(nil, 1)}
	}
	p := w.parts[0]
	refused := func(cmd *commandv1.Command, reason perdurev1.Reason, rule string) {
		t.Helper()
		before := content(p.state)
		e := wire.ReplyError(w.on(p, cmd))
		if e == nil || e.Reason != reason || e.Meta["rule"] != rule {
			t.Errorf("%v: answered %v, must be refused with %v by rule %s", cmd, e, reason, rule)
		}
		if after := content(p.state); before != after {
			t.Errorf("%v: refused, and yet the state has changed:\n%s", cmd, difference(before, after))
		}
	}
	const bad, broken, later = perdurev1.Reason_REASON_BAD_REQUEST, perdurev1.Reason_REASON_RULE_BROKEN, perdurev1.Reason_REASON_TRY_LATER
	refused(importCmd(0, header(here)), bad, ruleRestoreOne)
	refused(importDoneCmd(&commandv1.ImportDone{Restore: restoreName}), broken, ruleRestoreOne)
	for _, row := range []state.Write{
		header(there), {Key: []byte{}}, {Key: keys.MetaKey(state.MetaClock), Value: make([]byte, 8)}, {Key: keys.Number(keys.Inbox, 1)},
		{Key: keys.OutboxOf(2, 1, 1)}, {Key: keys.Number(keys.Channel, 2)}, {Key: []byte{0xee, 1}}, {Key: keys.Of(keys.Header, ns)},
		{Key: keys.Of(keys.Function, ns, "f"), Value: []byte{9}},
	} {
		refused(importCmd(restoreName, header(here), row), bad, ruleRestoreRow)
	}
	// Functions that workers register do not make a partition full; the workers' digest stays current.
	w.imported(p, &commandv1.Command{Namespace: ns, Kind: &commandv1.Command_RegisterFunctions{
		RegisterFunctions: &commandv1.RegisterFunctions{Functions: []string{"f"}, Digest: "new"}}})
	row := state.Write{Key: keys.Of(keys.Function, ns, "f"), Value: state.Digests{"old"}.Encode()}
	for range 2 {
		w.imported(p, importCmd(restoreName, row))
	}
	if b, _, _ := p.state.Get(row.Key); string(b) != string(state.Digests{"old", "new"}.Encode()) {
		t.Errorf("the function's digests are %q", b)
	}
	refused(importCmd(restoreName+1, header(here)), broken, ruleRestoreOne)
	refused(importDoneCmd(&commandv1.ImportDone{Restore: restoreName + 1}), broken, ruleRestoreOne)
	for _, cmd := range []*commandv1.Command{
		startCmd(w.request(), here, "f", ""), tickCmd(0), registerCmd("g"), heartbeatCmd("w"),
		{Kind: &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{Source: 1, Epoch: 1}}},
		{Kind: &commandv1.Command_Trim{Trim: &commandv1.Trim{Destination: 1, Epoch: 1}}},
	} {
		refused(cmd, later, wire.RuleRestoring)
	}
	if e := wire.QueryError(w.query(&commandv1.Query{Id: here, Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}})); e == nil || e.Reason != later {
		t.Errorf("a partition that is being restored answers a query with %v", e)
	}
	done := importDoneCmd(&commandv1.ImportDone{Restore: restoreName, Base: 1000, ClockMs: 99_000})
	w.imported(p, done)
	if p.m.Clock() < 99_000 {
		t.Errorf("the clock is at %d", p.m.Clock())
	}
	// The same restore again changes nothing, and says so; another one finds the partition full.
	start := startCmd(w.request(), here, "f", "")
	if got := w.imported(p, start).GetStart().Incarnation; got <= 1000 {
		t.Errorf("incarnation %d is not above those of the backup", got)
	}
	before := content(p.state)
	if reply := w.imported(p, importCmd(restoreName, header(here))); !reply.GetImport().Done {
		t.Errorf("a row after the end is answered with %v", reply)
	}
	w.imported(p, done)
	if after := content(p.state); before != after {
		t.Errorf("a restore that has ended changes the state:\n%s", difference(before, after))
	}
	refused(importCmd(restoreName+1, header(here)), broken, ruleRestoreEmpty)
}

// Messages that a restored partition has for itself are applied in their order before it serves, a bounded number in one
// entry; what they start has incarnations above those of the backup.
func TestImportOwnMessages(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	p, last := w.parts[0], uint64(importMessages+2)
	for n := uint64(1); n <= last; n++ {
		objectID := fmt.Sprint("started-", n)
		b, err := state.Deterministic.Marshal(&commandv1.Message{Seq: n, Namespace: ns, FromId: "sender", ToId: objectID,
			Kind: &commandv1.Message_Start{Start: &perdurev1.StartSend{Id: objectID, Function: "f", Input: []byte(fmt.Sprint(n))}}})
		if err != nil {
			t.Fatal(err)
		}
		w.imported(p, importCmd(restoreName, state.Write{Key: keys.OutboxOf(0, 3, n), Value: b}))
	}
	w.imported(p, importCmd(restoreName, state.Write{Key: keys.Number(keys.Channel, 0), Value: state.Channel{Epoch: 3, Last: last}.Encode()}))
	done := importDoneCmd(&commandv1.ImportDone{Restore: restoreName, Base: 1000, ClockMs: 5000})
	if !w.imported(p, done).GetImportDone().More {
		t.Error("all messages were applied in one entry")
	}
	if e := wire.ReplyError(w.on(p, tickCmd(0))); e == nil {
		t.Error("a partition with messages for itself serves")
	}
	if w.imported(p, done).GetImportDone().More {
		t.Error("there is no end to the messages")
	}
	w.audit(p)
	for n := uint64(1); n <= last; n++ {
		if e := w.describe(fmt.Sprint("started-", n)); e.Incarnation <= 1000 || e.CreatedMs < 5000 {
			t.Fatalf("%s is incarnation %d of %d", e.Id, e.Incarnation, e.CreatedMs)
		}
	}
	if n := count(p.state, []byte{byte(keys.Outbox)}) + count(p.state, []byte{byte(keys.Channel)}); n != 0 {
		t.Errorf("%d rows of a channel to the partition itself are left", n)
	}
}
