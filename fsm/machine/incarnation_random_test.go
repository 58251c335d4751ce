package machine

import (
	"flag"
	"fmt"
	"math/rand"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

var incarnationRuns = flag.Int("incarnations", 30, "random runs of TestIncarnationsRandom")

// TestIncarnationsRandom lets executions with children, timers, signals, clean-ups and versions end, get
// stuck, start again, restart at any event and continue as new, in any order and with late workers. After
// every entry the state must be one that the rules allow (world.audit), and in the end every id is served.
func TestIncarnationsRandom(t *testing.T) {
	for seed := range *incarnationRuns {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { incarnationsRandom(t, rand.New(rand.NewSource(int64(seed)))) })
	}
}

func incarnationsRandom(t *testing.T, rng *rand.Rand) {
	w := newWorld(t, 1+rng.Intn(3))
	w.effectsUnchecked = true
	roots := []string{"r0", "r1", "r2"}
	var held []*view
	texts := []string{
		"step s -> x", "step s !bad:no", "child g in", "child g in spread", "child f in; child g in", "sleep 3000", "time 4; random ab",
		"wait a timeout=2000", "return x", "return x", "fail bad:no", "continue", "continue", "child f in; await 0",
		"cleanup 5000; nothing", "cleanup 30000; step s -> x", "cleanup 30000; child g in", "cancelled why",
		"child g in id=own0", "child g in id=own1; child f in id=own2", "child g in id=own3; await 0",
	}
	begun, kept, stuck := 0, 0, 0
	var delivered []*commandv1.Command
	fine := func(cmd *commandv1.Command, reply *commandv1.Reply) bool {
		e := wire.ReplyError(reply)
		if e == nil {
			return true
		}
		switch e.Reason {
		case perdurev1.Reason_REASON_TRY_LATER: // of several commands in an entry
			return false
		case perdurev1.Reason_REASON_STALE_TASK, perdurev1.Reason_REASON_RULE_BROKEN, perdurev1.Reason_REASON_ID_CONFLICT,
			perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, perdurev1.Reason_REASON_ALREADY_FINISHED, perdurev1.Reason_REASON_BAD_REQUEST:
			return false
		}
		t.Fatalf("%v: %v", cmd, e)
		return false
	}
	accepted := func(cmd *commandv1.Command) bool { return fine(cmd, w.one(cmd)) }
	restart := func(id string) *commandv1.Command {
		cmd := restartCmd(w.request(), id, perdurev1.RestartFrom(rng.Intn(3)), 0)
		if cmd.GetRestart().From == fromEvent {
			cmd.GetRestart().Event = uint64(1 + rng.Intn(12))
		}
		cmd.GetRestart().NewChildren = rng.Intn(2) == 0
		return cmd
	}
	for range 150 {
		id := roots[rng.Intn(len(roots))]
		switch rng.Intn(20) {
		case 0, 1:
			accepted(reuseCmd(w.request(), id, "f", fmt.Sprint(rng.Intn(2)), perdurev1.Reuse(rng.Intn(3))))
		case 2:
			cmd := restart(id)
			if reply := w.one(cmd); wire.ReplyError(reply) == nil {
				begun++
				kept += int(reply.GetRestart().KeptEvents)
			} else {
				fine(cmd, reply)
			}
		case 3:
			accepted(signalCmd(w.request(), id, "a", "payload"))
		case 4:
			accepted(terminateCmd(id, "enough"))
		case 5:
			if len(held) == 0 || rng.Intn(2) == 0 {
				accepted(cancelCmd(id, "enough", 1000))
				continue
			}
			// A child too; its worker does not acknowledge.
			accepted(cancelCmd(held[rng.Intn(len(held))].token.Id, "enough", 1))
			w.now += 2
			w.tick()
		case 6:
			w.ship()
		case 7:
			w.now += int64(rng.Intn(4000))
			w.tick()
		case 8:
			w.open(w.parts[rng.Intn(len(w.parts))])
		case 9, 10:
			digests := []string{"", "", "v1", "v2 v1", "v3"}[rng.Intn(5)]
			held = append(held, w.takeAs(fmt.Sprint("w", rng.Intn(3)), digests, "f", "g", state.FunctionCleanup+"f")...)
		case 11:
			digest := fmt.Sprint("v", 1+rng.Intn(3))
			w.attach(digest, digest, "f", "g")
		case 12: // the code of a worker does not fit, perhaps of a former incarnation
			if len(held) == 0 {
				continue
			}
			cmd := releaseCmd(held[rng.Intn(len(held))].token, "another step", 0)
			cmd.GetRelease().CodeMismatch, cmd.GetRelease().Code = true, fmt.Sprint("v", 1+rng.Intn(3))
			if accepted(cmd) {
				stuck++
			}
		case 13: // a commit and what follows it in one entry
			at := w.at(id)
			var commands []*commandv1.Command
			for _, v := range held {
				if w.at(v.token.Id) == at && len(commands) < 2 && rng.Intn(2) == 0 {
					commands = append(commands, w.commitCmd(v, texts[rng.Intn(len(texts))]))
				}
			}
			commands = append(commands, signalCmd(w.request(), id, "a", "payload"), restart(id), restart(id))
			for i, reply := range w.apply(at, &commandv1.Entry{Commands: commands}).Replies {
				fine(commands[i], reply)
			}
			for _, v := range held {
				if h, ok, err := state.ReadHeader(at.state, ns, v.token.Id); err != nil {
					t.Fatal(err)
				} else if ok && h.Incarnation == v.token.Incarnation {
					w.read(v)
				}
			}
		case 14, 15: // some messages of one channel, which are not trimmed and so come again
			src := rng.Intn(len(w.parts))
			if dst := rng.Intn(len(w.parts)); dst != src {
				if cmd := w.deliverCmd(src, dst, 1+rng.Intn(8)); len(cmd.GetDeliver().Messages) > 0 {
					delivered = append(delivered, cmd)
					fine(cmd, w.apply(w.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{cmd}}).Replies[0])
				}
			}
		case 16: // former messages come again, some in the entry of a restart
			for _, cmd := range delivered {
				to := state.PartitionOf(ns, cmd.GetDeliver().Messages[0].ToId, uint32(len(w.parts)))
				commands := []*commandv1.Command{cmd}
				if w.at(id) == w.parts[to] {
					commands = append(commands, restart(id))
				}
				for i, reply := range w.apply(w.parts[to], &commandv1.Entry{Commands: commands}).Replies {
					fine(commands[i], reply)
				}
			}
			delivered = nil
		default: // a worker commits, perhaps one of a former incarnation
			if len(held) == 0 {
				continue
			}
			v := held[rng.Intn(len(held))]
			cmd := w.commitCmd(v, texts[rng.Intn(len(texts))])
			if next := w.one(cmd).GetCommit(); next != nil && next.State == acquired {
				w.read(v)
			}
		}
	}
	// Every id can be served again, once the clean-ups after the former incarnations have ended by their bounds.
	for _, id := range roots {
		accepted(terminateCmd(id, "over"))
	}
	w.now += 60_000
	w.tick()
	for _, id := range roots {
		w.do(reuseCmd(w.request(), id, "last", "", perdurev1.Reuse_REUSE_ALWAYS))
	}
	w.tick()
	for _, v := range w.take("w", 10, "last") {
		w.commit(v, "child g; return done")
	}
	for _, id := range roots {
		if p := w.promise(id); p.State != perdurev1.PromiseState_PROMISE_STATE_RESOLVED {
			t.Errorf("%s is %v", id, p.State)
		}
	}
	w.ship()
	t.Logf("%d restarts that kept %d entries, %d mismatches", begun, kept, stuck)
}
