package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// BenchmarkApply is entries as a loaded leader makes them: of a number of executions side by side, each of three local
// steps. One operation is one execution of each: five entries with a command of each execution.
func BenchmarkApply(b *testing.B) {
	for _, side := range []int{1, 10, 50} {
		b.Run(fmt.Sprintf("%d-commands-an-entry", side), func(b *testing.B) {
			p := newBenchPart(b)
			g := grant("w", side, "checkout")
			g.LeaseMs = 1 << 40
			p.reset()
			started := p.index
			for n := range b.N {
				entry := &commandv1.Entry{Grants: []*commandv1.Grant{g}}
				for i := range side {
					k := n*side + i
					entry.Commands = append(entry.Commands, startCmd(fmt.Appendf(nil, "request-%08d", k), fmt.Sprintf("order-%08d", k), "checkout", string(benchInput)))
				}
				var tokens []*perdurev1.TaskToken
				for _, a := range p.apply(entry).Effects.Assigned {
					tokens = append(tokens, a.Token)
				}
				if len(tokens) != side {
					b.Fatalf("%d tasks are assigned, not %d", len(tokens), side)
				}
				for step := range uint32(4) {
					entry := &commandv1.Entry{}
					for _, t := range tokens {
						entry.Commands = append(entry.Commands, stepCmd(t, step))
					}
					p.apply(entry)
				}
			}
			entries := float64(p.index - started)
			b.ReportMetric(entries/b.Elapsed().Seconds(), "entries/s")
			b.ReportMetric(entries*float64(side)/b.Elapsed().Seconds(), "commands/s")
			p.report()
		})
	}
}

// stepCmd is the commit of one of three steps, or after those the end.
func stepCmd(token *perdurev1.TaskToken, n uint32) *commandv1.Command {
	c := &perdurev1.Commit{Task: token, NextChild: n, KnownSeq: uint64(1 + 3*n), Events: []*perdurev1.Event{returning("done")}}
	if n < 3 {
		promise := fmt.Sprintf("%s:%d", token.Id, n)
		c.Events = []*perdurev1.Event{
			scheduled(promise, perdurev1.InvokeKind_INVOKE_KIND_STEP, "step", "", "attempts=3"),
			invokeStarted(promise, 1), completed(promise, 1, value(string(benchInput))),
		}
	}
	return wrapCommit(fmt.Appendf(nil, "commit-%s-%d", token.Id, n), c)
}
