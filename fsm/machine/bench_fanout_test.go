package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// BenchmarkFanOut is executions that start twenty children at once and wait for all, eight of them side by side. One
// operation is one execution. The children end in shared entries, each in a commit of its own. Workers take them in the
// entry that starts them, or a later one finds them in a queue.
func BenchmarkFanOut(b *testing.B) {
	b.Run("at-once", func(b *testing.B) { benchFanOut(b, false) })
	b.Run("queued", func(b *testing.B) { benchFanOut(b, true) })
}

func benchFanOut(b *testing.B, queued bool) {
	const side, children = 8, 20
	p := newBenchPart(b)
	g := grant("w", 1000, "parent", "child")
	g.LeaseMs = 1 << 40
	p.apply(&commandv1.Entry{Commands: []*commandv1.Command{raiseLevelCmd(state.FeatureLevel)}})
	p.reset()
	entry := func(cmds ...*commandv1.Command) []Assignment {
		return p.apply(&commandv1.Entry{Commands: cmds, Grants: []*commandv1.Grant{g}}).Effects.Assigned
	}
	for n := 0; n < b.N; n += side {
		var cmds []*commandv1.Command
		for k := range side {
			cmds = append(cmds, startCmd(fmt.Appendf(nil, "request-%08d", n+k), fmt.Sprintf("order-%08d", n+k), "parent", string(benchInput)))
		}
		parents := entry(cmds...)
		cmds = nil
		for _, a := range parents {
			c := &perdurev1.Commit{Task: a.Token, KnownSeq: 1}
			var on []string
			for i := range children {
				promise := fmt.Sprintf("%s:%d", a.Token.Id, i)
				on = append(on, promise)
				c.Events = append(c.Events, scheduled(promise, perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, "child", string(benchInput), ""))
			}
			c.Events = append(c.Events, awaiting(perdurev1.AwaitKind_AWAIT_KIND_ALL, "", on...))
			cmds = append(cmds, wrapCommit(fmt.Appendf(nil, "wait-%s", a.Token.Id), c))
		}
		if queued {
			p.apply(&commandv1.Entry{Commands: cmds})
			cmds = nil
		}
		tasks := entry(cmds...)
		if len(tasks) != side*children {
			b.Fatalf("%d children are assigned", len(tasks))
		}
		for len(tasks) > 0 {
			n := min(len(tasks), 64)
			cmds = nil
			for _, a := range tasks[:n] {
				c := &perdurev1.Commit{Task: a.Token, KnownSeq: 1, Events: []*perdurev1.Event{returning("done")}}
				if a.Function == "parent" {
					c.NextChild = children
				}
				cmds = append(cmds, wrapCommit(fmt.Appendf(nil, "end-%s", a.Token.Id), c))
			}
			tasks = append(tasks[n:], entry(cmds...)...)
		}
	}
	p.report()
}
