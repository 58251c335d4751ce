package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure/embed"
	"perdure/entity"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/testkit"
	"perdure/journal"
	"perdure/recovery"
)

// A planting is one corruption of a state, and by what it is to be named.
type planting struct {
	what, rule, id string
	in             string // the object whose partition it is planted into; id if empty
	seq            int    // the entry that is named; -1 for none
	change         func(s *plot)
	says           string // part of the detail
}

// plantings are corruptions of the real node's states.
func plantings() []planting {
	none := []byte{}
	return []planting{
		// Values that are stored in two places.
		{"a node that waits for another signal than its graph says", audit.RuleGraph, "flow", "", -1, func(s *plot) { s.row("flow", 2, "approve", "bpprove") }, `"bpprove", the graph says "approve"`},
		{"an output that its promise and journal do not have", audit.RuleGraph, "made", "", -1, func(s *plot) { s.end("made", 0, "\x010", "\x017") }, "its output has 1 bytes"},
		{"an output gone", audit.RuleGraph, "flow", "", -1, func(s *plot) { s.end("flow", 0, "\x010", "\x00") }, "completed without an output"},
		{"an output of a node that was skipped", audit.RuleGraph, "flow", "", -1, func(s *plot) { s.end("flow", 1, "\x00", "\x011") }, "output_iff_completed (Definition 1, item 3)"},
		{"a child's result that its parent's journal does not have", audit.RuleResult, "caller", "", -1, func(s *plot) {
			s.promise("caller:0", func(p *recovery.Promise) { p.Value = value("9") })
		}, `"caller:0": the journal has a result`},
		{"a result that is no outcome", audit.RuleOutcome, "caller", "", 9999, func(s *plot) {
			s.replace("caller", journal.KindInvokeCompleted, func(ev journal.Event) journal.Event {
				done := ev.(journal.InvokeCompleted)
				done.Result = []byte{0xff, 1, 2}
				return done
			})
		}, "the result of InvokeCompleted is no outcome"},
		{"a node's promise with another value", audit.RuleGraph, "made", "", -1, func(s *plot) {
			s.promise("made:0", func(p *recovery.Promise) { p.Value = value("9") })
		}, "its promise, resolved, another"},
		{"a graph run's result that its nodes do not make", audit.RuleGraph, "made", "", -1, func(s *plot) {
			s.replace("made", journal.KindExecutionCompleted, func(journal.Event) journal.Event { return journal.ExecutionCompleted{Result: []byte("{}")} })
		}, "make another"},
		{"another failure than the attempt's", audit.RuleGraph, "lost", "", -1, func(s *plot) { s.row("lost", 0, "it broke", "it brake") }, "its failure has"},
		{"a timer that did not fire as its promise says", audit.RuleResult, "caller", "", -1, func(s *plot) {
			s.promise("caller:1", func(p *recovery.Promise) { p.TimeoutAt, p.SettledAt = p.TimeoutAt+1, p.SettledAt+1 })
		}, "the journal has a timer for"},
		{"a child of another input", audit.RuleInput, "caller:0", "", -1, func(s *plot) {
			s.replace("caller:0", journal.KindExecutionStarted, func(ev journal.Event) journal.Event {
				started := ev.(journal.ExecutionStarted)
				started.Input = []byte("9")
				return started
			})
		}, "1 bytes of input"},
		{"an attempt of another input", audit.RuleInput, "made:0.0", "", -1, func(s *plot) {
			s.replace("made:0.0", journal.KindExecutionStarted, func(ev journal.Event) journal.Event {
				started := ev.(journal.ExecutionStarted)
				started.Input = []byte("9")
				return started
			})
		}, "bytes of input"},
		{"a promise whose value is no outcome", audit.RuleOutcome, "failed", "", -1, func(s *plot) {
			s.promise("failed", func(p *recovery.Promise) { p.Value = []byte{7} })
		}, "is no outcome"},
		{"a promise settled after its execution was closed", audit.RuleEnding, "cancelled", "", -1, func(s *plot) {
			s.promise("cancelled", func(p *recovery.Promise) { p.CreatedAt, p.SettledAt = p.CreatedAt-5, p.SettledAt-5 })
		}, "it was closed at"},
		{"a task resumed by what is pending", audit.RuleWait, "waiting", "", -1, func(s *plot) {
			s.task("waiting", func(task *recovery.Task) { task.Resumes = []string{"waiting:7"} })
		}, "which is not settled"},
		{"an entry of tomorrow", audit.RuleClock, "asking", "", 0, func(s *plot) {
			e, err := journal.DecodeEntry(s.get(s.entry("asking", 0)))
			s.must(err)
			e.Time += 86_400_000
			s.put(s.entry("asking", 0), journal.AppendEntry(nil, e))
		}, "the clock is at"},
		{"a promise of an entry to come", audit.RuleClock, "bare", "", -1, func(s *plot) {
			s.promise("bare", func(p *recovery.Promise) { p.Incarnation = 1 << 40 })
		}, "the state at index"},
		{"another graph's signal", audit.RuleGraph, "flow", "", -1, func(s *plot) {
			s.put(latchOf(s, "flow", "never"), []byte("1"))
		}, "was never delivered"},

		// The first kinds of damage.
		{"an attempt completed that never started", journal.RuleCompletedRequiresStarted, "asking", "", 2, func(s *plot) {
			s.event("asking", 2, journal.InvokeCompleted{Promise: "asking:0", Attempt: 1})
		}, ""},
		{"an end before the end", journal.RuleTerminalIsLast, "sleeping", "", 2, func(s *plot) { s.event("sleeping", 1, journal.ExecutionCompleted{}) }, ""},
		{"a hole in a journal", journal.RuleSequence, "done", "", 1, func(s *plot) { s.drop(s.entry("done", 1)) }, ""},
		{"an entry that is none", audit.RuleDamaged, "failed", "", -1, func(s *plot) { s.put(s.entry("failed", 1), []byte("nonsense")) }, ""},
		{"a journal without an execution", audit.RuleOrphanJournal, "ghost", "", -1, func(s *plot) {
			s.put(keys.JournalEntry("default", "ghost", 1, 0), journal.AppendEntry(nil, journal.Entry{Event: journal.ExecutionStarted{}}))
		}, ""},
		{"no header", audit.RuleOrphanExecution, "asking", "", -1, func(s *plot) { s.drop(of(keys.Header, "asking")) }, ""},
		{"another's header", audit.RuleMisplaced, "calling", "", -1, func(s *plot) { s.put(of(keys.Header, "calling"), s.get(of(keys.Header, "calling:0"))) }, ""},
		{"a longer journal than the header says", audit.RuleHeader, "failed", "", -1, func(s *plot) {
			s.put(append(s.entry("failed", 0)[:len(s.entry("failed", 0))-1], 77), journal.AppendEntry(nil, journal.Entry{Seq: 77, Event: journal.ExecutionResumed{}}))
		}, ""},
		{"no task", audit.RuleOrphanExecution, "sleeping", "", -1, func(s *plot) { s.drop(of(keys.Task, "sleeping")) }, ""},
		{"a result taken back", audit.RuleEnding, "done", "", -1, func(s *plot) {
			s.promise("done", func(p *recovery.Promise) { p.State, p.Value, p.SettledAt = recovery.PromisePending, nil, 0 })
		}, ""},
		{"another result", audit.RuleEnding, "done", "", -1, func(s *plot) {
			s.promise("done", func(p *recovery.Promise) { p.Value = []byte("\x00another") })
		}, ""},
		{"a task that sleeps while it should not", audit.RuleSuspended, "waiting", "", -1, func(s *plot) {
			s.task("waiting", func(task *recovery.Task) { task.State, task.RetryAt = recovery.TaskSuspended, 0 })
		}, ""},
		{"a fulfilled task of what is open", recovery.SettledNotFulfilled, "asking", "", -1, func(s *plot) {
			s.task("asking", func(task *recovery.Task) { task.State = recovery.TaskFulfilled })
		}, ""},
		{"a deadline lost", recovery.MissingPromiseTimeout, "bare", "", -1, func(s *plot) {
			s.promise("bare", func(p *recovery.Promise) {
				s.drop(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, "default", "bare"))
			})
		}, ""},
		{"a timer that never fires", audit.RuleStuck, "sleeping", "", -1, func(s *plot) {
			s.promise("sleeping:0", func(p *recovery.Promise) {
				s.drop(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, "default", "sleeping:0"))
			})
		}, ""},
		{"a stray deadline", audit.RuleDeadline, "done", "", -1, func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineLease, 5, "default", "done"), none) }, ""},
		{"a stray callback", recovery.CallbackIndex, "asking", "", -1, func(s *plot) { s.put(of(keys.AwaitedBy, "asking", "bare"), none) }, ""},
		{"a listener of what is over", recovery.ListenerForSettledPromise, "done", "", -1, func(s *plot) { s.put(of(keys.Listener, "done", "somebody"), none) }, ""},
		{"listeners of what is over, notified at a time that is not in the index", audit.RuleDeadline, "done", "", -1, func(s *plot) {
			s.put(of(keys.Listener, "done", "somebody"), none)
			s.put(of(keys.Notify, "done"), state.Notification{AtMS: 5, From: "somebody"}.Encode())
		}, "its listeners are notified at 5"},
		{"listeners that are notified when there are none", audit.RuleDeadline, "done", "", -1, func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineNotify, 5, "default", "done"), none)
		}, "listeners are notified then"},
		{"an unblock that is given up at a time that is not in the index", audit.RuleDeadline, "done", "", -1, func(s *plot) {
			s.put(of(keys.Unblock, "poll://x", "done"), keys.AppendUint64(nil, 5))
		}, "waits until 5"},
		{"an unblock's end without an unblock", audit.RuleDeadline, "done", "", -1, func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineUnblock, 5, "default", state.UnblockID("done", "poll://x")), none)
		}, "no unblock for"},
		{"a place in a queue lost", audit.RuleReady, "waiting", "", -1, func(s *plot) { s.drop(s.below(of(keys.Ready, "missing-has-it"))[0]) }, ""},
		{"a place of what waits for something else", audit.RuleReady, "asking", "", -1, func(s *plot) { s.put(keys.ReadyOf("default", "ask", 5, "asking"), none) }, ""},
		{"not listed", audit.RuleListing, "cancelled", "", -1, func(s *plot) {
			for _, key := range s.below(keys.VisibilityPrefix("default", keys.Cancelled)) {
				s.drop(key)
			}
		}, ""},
		{"a message out of nowhere", audit.RuleChannel, fmt.Sprint("partition ", (here("done")+1)%realPartitions), "done", -1, func(s *plot) {
			s.put(keys.OutboxOf((here("done")+1)%realPartitions, 1, 9_999), []byte{8, 1})
		}, ""},
		{"replies miscounted", audit.RuleReplies, "", "done", -1, func(s *plot) { s.put(keys.MetaKey("replies"), keys.AppendUint64(nil, 9_999)) }, ""},
		{"an object of another partition", audit.RuleMisplaced, elsewhere("asking"), "asking", -1, func(s *plot) {
			s.put(of(keys.Promise, elsewhere("asking")), recovery.AppendPromise(nil, recovery.Promise{ID: elsewhere("asking"), Incarnation: 1,
				State: recovery.PromisePending, External: true, TimeoutAt: state.Never, CreatedAt: 1}))
		}, ""},
		{"an entity without its task", audit.RuleEntity, "account@held", "", -1, func(s *plot) { s.drop(of(keys.Task, "account@held:@")) }, "no task"},
		{"operations without an entity", audit.RuleEntity, "account@held", "", -1, func(s *plot) { s.drop(of(keys.Entity, "account@held")) }, "there is no entity"},
		{"more operations than an entity admits", audit.RuleBacklog, "account@held", "", -1, func(s *plot) {
			for n := range state.MaxEntityQueue + 1 {
				item := entity.Entry{Seq: uint64(1_000 + n), Message: entity.Signal{Origin: entity.Party{Kind: entity.PartyClient, ID: "client"},
					Entity: "account@held", Request: fmt.Sprint(n), Operation: "add"}}
				s.put(keys.EntityItemOf("default", "account@held", keys.Queued, item.Seq), entity.AppendEntry(nil, item))
			}
			head, err := state.DecodeEntityHead(s.get(of(keys.Entity, "account@held")))
			if err != nil {
				s.t.Fatal(err)
			}
			head.NextSeq = 1_000 + state.MaxEntityQueue + 1
			s.put(of(keys.Entity, "account@held"), state.EncodeEntityHead(head.State, head.EntityWork))
		}, " operations of clients wait with"},
		{"an operation cut short", audit.RuleDamaged, "account@held", "", -1, func(s *plot) {
			key := s.below(keys.EntityItemPrefix("default", "account@held"))[0]
			s.put(key, s.get(key)[:4])
		}, ""},
		{"a scheduled signal that is gone", audit.RuleEntity, "account@held", "", -1, func(s *plot) {
			s.drop(s.below(append(keys.EntityItemPrefix("default", "account@held"), byte(keys.Delayed)))[0])
		}, "first scheduled signal"},
		{"a section cut short", audit.RuleDamaged, "holding", "", -1, func(s *plot) {
			key := s.below(of(keys.Holder, "holding"))[0]
			s.put(key, s.get(key)[:6])
		}, ""},
		{"heartbeats of an ended execution", audit.RuleHeartbeat, "done", "", -1, func(s *plot) {
			s.put(keys.HeartbeatOf("default", "done", s.header("done", func(*state.Header) {}).Incarnation),
				state.EncodeHeartbeats([]state.StepHeartbeat{{Name: "copy", Attempt: 1, AtMS: 1, Details: []byte("half")}}))
		}, "is not open"},
		{"a heartbeat that is gone", audit.RuleHeartbeat, "asking", "", -1, func(s *plot) {
			s.header("asking", func(h *state.Header) { h.HeartbeatAt = 1 })
		}, "none is stored"},
		// Without its deadline, so that no tick of the serving node carries it out.
		{"remains of a purge that say the execution's own rows", audit.RulePurge, "done", "", -1, func(s *plot) {
			s.header("done", func(h *state.Header) { s.put(of(keys.Remains, "done"), keys.AppendUint64(nil, h.Incarnation)) })
		}, "rows of incarnations up to"},
		{"remains of a purge that no tick deletes", audit.RuleDeadline, "purged", "", -1, func(s *plot) {
			s.put(of(keys.Remains, "purged"), keys.AppendUint64(nil, 1))
		}, "its remains are not in the index"},
		{"remains of a purge in another form", audit.RuleDamaged, "purged", "", -1, func(s *plot) { s.put(of(keys.Remains, "purged"), []byte("x")) }, ""},
		{"a purge of what is open", audit.RulePurge, "waiting", "", -1, func(s *plot) {
			const later = 1 << 45 // no tick of the serving node goes on with it
			s.header("waiting", func(h *state.Header) { h.Purge, h.PurgeAt = "\x00", later })
			s.put(keys.DeadlineOf(keys.DeadlinePurge, later, "default", "waiting"), none)
		}, "is being purged"},
		{"a purge that no tick continues", audit.RuleDeadline, "done", "", -1, func(s *plot) {
			s.header("done", func(h *state.Header) { h.Purge, h.PurgeAt = "\x00", 5 })
		}, "its purge at 5 is not in the index"},
		{"a sweep that no execution has", audit.RuleDeadline, "done", "", -1, func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineSweep, 5, "default", "done"), none) }, "swept then"},
		{"a sweep without its deadline", audit.RuleDeadline, "failed", "", -1, func(s *plot) {
			s.rows("failed")
			s.header("failed", func(h *state.Header) { h.Former, h.Generation, h.SweepAt, h.Sweep = h.Incarnation-1, 1, 77, []byte{1} })
		}, "its sweep at 77 is not in the index"},
		{"children that no execution reaches", audit.RuleDeadline, "sleeping", "", -1, func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineChildren, 5, "default", "sleeping"), none)
		}, "children are reached then"},
		{"children that are never reached", audit.RuleDeadline, "cancelled", "", -1, func(s *plot) {
			s.header("cancelled", func(h *state.Header) { h.ChildrenAt = 77 })
		}, "its children are reached at 77, which is not in the index"},
		{"children of a running parent", audit.RuleHeader, "calling", "", -1, func(s *plot) {
			s.header("calling", func(h *state.Header) { h.ChildrenAt, h.ChildrenFrom = 77, 1 })
		}, "its children from 1 on"},
		{"listed as stuck and running", audit.RuleCode, "asking", "", -1, func(s *plot) { s.put(of(keys.Stuck, "ask", "asking"), none) }, "listed as stuck"},
		{"halted and not listed as stuck", audit.RuleCode, "waiting", "", -1, func(s *plot) {
			s.task("waiting", func(task *recovery.Task) { task.State = recovery.TaskHalted })
		}, "not listed as stuck"},
		{"a function without a name", audit.RuleDamaged, "", "bare", -1, func(s *plot) { s.put(of(keys.Function, ""), none) }, "without a name"},
		{"an inbox of this partition", audit.RuleChannel, fmt.Sprint("partition ", here("asking")), "asking", -1, func(s *plot) {
			s.put(keys.Number(keys.Inbox, here("asking")), state.Channel{Epoch: 1, Last: 1}.Encode())
		}, "an inbox for messages"},
		{"a child with more attempts than its caller's journal allows", audit.RuleInput, "retried:0", "", -1, func(s *plot) {
			s.header("retried:0", func(h *state.Header) { h.Retry.Attempts = 9 })
		}, "has 9 attempts"},
		{"a child with more failed attempts than it has", audit.RuleHeader, "retried:0", "retried", -1, func(s *plot) {
			s.header("retried:0", func(h *state.Header) { h.FailedAttempts = 3 })
		}, "3 attempts have failed"},
		{"a proxy promise with more attempts than the journal allows", audit.RuleInput, "retried", "", -1, func(s *plot) {
			s.promise("retried:1", func(p *recovery.Promise) { s.mark(p, func(c *state.ChildElsewhere) { c.Retry.Attempts = 9 }) })
		}, "has 9 attempts"},
		{"a proxy promise that names no child", audit.RuleInput, "retried", "", -1, func(s *plot) {
			s.promise("retried:1", func(p *recovery.Promise) { p.Tags[0].Value = "?" })
		}, "names no child"},
		{"a proxy promise with another pause than its child", audit.RuleInput, ownChild, "retried", -1, func(s *plot) {
			s.promise("retried:1", func(p *recovery.Promise) { s.mark(p, func(c *state.ChildElsewhere) { c.Retry.InitialMS++ }) })
		}, "its promise \"retried:1\" the retries"},
		{"a child with another tag than its proxy promise", audit.RuleInput, ownChild, "retried", -1, func(s *plot) {
			s.header(ownChild, func(h *state.Header) { h.Tags = []recovery.Tag{{Key: "of", Value: "another"}} })
		}, `"another"}], its promise`},
		{"a key of no family", audit.RuleDamaged, "", "done", -1, func(s *plot) { s.put([]byte{0x99, 1}, none) }, ""},
	}
}

// latchOf is where a graph run keeps a signal.
func latchOf(s *plot, run, signal string) []byte {
	graph := s.below(of(keys.Graph, run))[0]
	incarnation, _, err := keys.CutUint64(graph[len(graph)-8:])
	s.must(err)
	return keys.LatchOf("default", run, incarnation, signal)
}

// verify names every planted fault, by its rule and its object, in the partition it is in. With -short it tries some: the
// running nodes of the next test have all of them.
func TestVerifyFindsWhatIsPlanted(t *testing.T) {
	t.Parallel() // others wait meanwhile
	n := aRealNode(t)
	if all := plantings(); len(all) < 40 {
		t.Errorf("only %d plantings", len(all))
	}
	for i, c := range plantings() {
		if i%testkit.Choose(5, 1, 1) != 0 {
			continue
		}
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			must(t, os.CopyFS(dir, os.DirFS(n.stopped)))
			in := c.in
			if in == "" {
				in = c.id
			}
			plant(t, dir, here(in), c.change)
			got, stderr, code := verifyDir(t, dir)
			if code != exitFailed || got.OK || !got.finds(c.rule, c.id, c.says) || !strings.Contains(stderr, "VIOLATIONS") {
				t.Fatalf("exit %d, %s of %q must be found, found\n%+v\n%s", code, c.rule, c.id, got.Violations, stderr)
			}
			for _, v := range got.Violations {
				if v.Partition == nil || *v.Partition != int(here(in)) {
					t.Errorf("found in partition %v, planted into %d: %+v", v.Partition, here(in), v)
				}
				if v.Rule == c.rule && v.ID == c.id && c.says == "" && (c.seq >= 0) != (v.Seq != nil) {
					t.Errorf("entry %v, must be %d: %+v", v.Seq, c.seq, v)
				}
			}
			text, _, code := (&shell{addr: "127.0.0.1:1"}).run("verify", "--data", dir)
			line := "violation: " + c.rule + ": "
			if c.id != "" {
				line += c.id
			}
			if c.seq >= 0 && c.seq < 9999 {
				line += fmt.Sprintf(", entry %d: ", c.seq)
			}
			if code != exitFailed || !strings.Contains(text, "\n"+line) || !strings.Contains(text, fmt.Sprintf("partition %d)\n", here(in))) {
				t.Errorf("exit %d, the line %q is not in\n%s", code, line, text)
			}
		})
	}
}

// A running cluster reports the same faults, on every node, and continues to serve. Faults in different call
// trees are looked for together.
func TestVerifyLiveFindsWhatIsPlanted(t *testing.T) {
	t.Parallel() // others wait meanwhile
	n := aRealNode(t)
	left := plantings()
	nodes := 0
	for ; len(left) > 0; nodes++ {
		var now, later []planting
		taken := map[string]bool{}
		for _, c := range left {
			in := c.in
			if in == "" {
				in = c.id
			}
			root, _, _ := strings.Cut(in, ":")
			if taken[root] {
				later = append(later, c)
				continue
			}
			taken[root] = true
			now = append(now, c)
		}
		left = later
		dir := filepath.Join(t.TempDir(), "data")
		must(t, os.CopyFS(dir, os.DirFS(n.stopped)))
		for _, c := range now {
			in := c.in
			if in == "" {
				in = c.id
			}
			plant(t, dir, here(in), c.change)
		}
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		node, err := embed.Start(ctx, embed.Config{DataDir: dir, AuditShare: embed.NoShare,
			DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
			Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		stdout, stderr, code := (&shell{addr: node.GRPCAddr()}).run("verify", "--json")
		var got verifyReport
		if stdout != "" {
			got = verifyReportOf(t, stdout)
		}
		if code != exitFailed || got.OK || !strings.Contains(stderr, "VIOLATIONS") {
			t.Errorf("exit %d: %s\n%s", code, stdout, stderr)
		}
		for _, c := range now {
			if !got.finds(c.rule, c.id, c.says) {
				t.Errorf("%s: %s of %q (%s) must be found, found\n%+v", c.what, c.rule, c.id, c.says, got.Violations)
			}
		}
		must(t, node.Close(ctx))
		cancel()
	}
	t.Logf("%d plantings in %d nodes", len(plantings()), nodes)
}
