package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// BenchmarkPurge purges executions of one step, each by a command of its own or 64 by one command, in entries of 64 purges. One
// operation is one purge: the machine's part of it, without the log.
//
//	go test ./fsm/machine -run none -bench 'Purge$' -benchtime 20000x
func BenchmarkPurge(b *testing.B) {
	for _, how := range []string{"single", "many"} {
		b.Run(how, func(b *testing.B) {
			p := newBenchPart(b)
			p.apply(&commandv1.Entry{Commands: []*commandv1.Command{raiseLevelCmd(state.FeatureLevel)}})
			for n := range b.N {
				token := p.start(n)
				p.apply(&commandv1.Entry{Commands: []*commandv1.Command{wrapCommit(fmt.Appendf(nil, "commit-%08d", n), &perdurev1.Commit{
					Task: token, NextChild: 0, KnownSeq: 1, Events: []*perdurev1.Event{returning("done")}})}})
			}
			var entries []*commandv1.Entry
			for n := 0; n < b.N; n += MaxPurges {
				entry, many := &commandv1.Entry{}, &commandv1.PurgeMany{}
				for i := min(n+MaxPurges, b.N) - 1; i >= n; i-- { // in the order of the listing
					one := purgeCmd(fmt.Sprintf("order-%08d", i))
					entry.Commands = append(entry.Commands, one)
					many.Purges = append(many.Purges, one.GetPurge())
				}
				if how == "many" {
					entry.Commands = []*commandv1.Command{{Namespace: ns, Kind: &commandv1.Command_PurgeMany{PurgeMany: many}}}
				}
				entries = append(entries, entry)
			}
			// A replica that has been started again has none of them in memory.
			m, err := New(Config{Partitions: 1}, p)
			if err != nil {
				b.Fatal(err)
			}
			p.m = m
			p.reset()
			for _, entry := range entries {
				p.apply(entry)
			}
			b.ReportMetric(float64(p.writes)/float64(b.N), "writes/op")
			b.ReportMetric(float64(p.gets)/float64(b.N), "gets/op")
			b.ReportMetric(float64(p.scans)/float64(b.N), "scans/op")
		})
	}
}
