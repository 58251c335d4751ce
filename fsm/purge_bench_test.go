package fsm

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// keptInBenchmark is how many ended executions the state has when their purges begin, purgedBeside how many commands an entry has.
const keptInBenchmark, purgedBeside = 50_000, 16

// BenchmarkPurging applies entries of short executions, with flushes and compactions, on a replica that keeps what has ended, and on one
// that purges as many as end. One operation is one execution; cpu-us/op is what the process used.
//
//	go test ./fsm -run - -bench Purging -benchtime 200000x
func BenchmarkPurging(b *testing.B) {
	for _, purges := range []bool{false, true} {
		b.Run(map[bool]string{false: "keeping", true: "purging"}[purges], func(b *testing.B) { benchmarkPurging(b, purges) })
	}
}

func benchmarkPurging(b *testing.B, purges bool) {
	cache := pebble.NewCache(32 << 20)
	defer cache.Unref()
	s, err := Open(b.TempDir(), Options{Create: true, Stamp: stampOfTests, Logger: quiet{}, MemTableBytes: 8 << 20, Cache: cache, Machine: machine.Config{Partitions: 1}, OnFatal: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	index, now := uint64(0), int64(1_000_000)
	apply := func(e *commandv1.Entry) {
		index++
		now += 5
		e.TimeMs = now
		data, err := EncodeEntry(e)
		if err != nil {
			b.Fatal(err)
		}
		res, applied := s.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}).(*machine.Result)
		if !applied {
			b.Fatalf("entry %d is not applied", index)
		}
		for _, r := range res.Replies {
			if e := wire.ReplyError(r); e != nil {
				b.Fatal(e)
			}
		}
	}
	apply(&commandv1.Entry{Commands: []*commandv1.Command{{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: state.FeatureLevel}}}}})
	id := func(n int) string { return fmt.Sprintf("%08x", uint32(n)*2654435761) }
	purged := 0
	run := func(from, to int) {
		for n := from; n < to; n += purgedBeside {
			start := &commandv1.Entry{Grants: []*commandv1.Grant{{Worker: "w", Namespace: ns, Functions: []string{"f"}, Credit: purgedBeside, LeaseMs: 10_000}}}
			end := &commandv1.Entry{}
			for i := n; i < n+purgedBeside; i++ {
				start.Commands = append(start.Commands, &commandv1.Command{Namespace: ns, Id: id(i), Request: &perdurev1.RequestID{Id: fmt.Appendf(nil, "request-%08d", i)},
					Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{Id: id(i), Function: "f", Input: make([]byte, 64), AllowUnknownFunction: true}}})
				end.Commands = append(end.Commands, &commandv1.Command{Namespace: ns, Id: id(i), Request: &perdurev1.RequestID{Id: fmt.Appendf(nil, "commit-%08d", i)},
					Kind: &commandv1.Command_Commit{Commit: &perdurev1.Commit{Task: &perdurev1.TaskToken{Namespace: ns, Id: id(i), Incarnation: index + 1, Version: 1}, KnownSeq: 1,
						Events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: make([]byte, 64)}}}}}}})
			}
			if purges && n-purged >= keptInBenchmark+machine.MaxPurges {
				many := &commandv1.PurgeMany{}
				for from := purged + machine.MaxPurges - purgedBeside; from >= purged; from -= purgedBeside {
					var ids []string // as the listing has them
					for i := range purgedBeside {
						ids = append(ids, id(from+i))
					}
					slices.Sort(ids)
					for _, id := range ids {
						many.Purges = append(many.Purges, &perdurev1.PurgeRequest{Id: id, Force: true})
					}
				}
				end.Commands = append(end.Commands, &commandv1.Command{Namespace: ns, Kind: &commandv1.Command_PurgeMany{PurgeMany: many}})
				purged += machine.MaxPurges
			}
			apply(start)
			apply(end)
		}
	}
	run(0, keptInBenchmark)
	b.ReportAllocs()
	before := used()
	b.ResetTimer()
	run(keptInBenchmark, keptInBenchmark+b.N)
	b.ReportMetric(float64(used()-before)/1000/float64(b.N), "cpu-us/op")
}

// used is the CPU time of the process in nanoseconds.
func used() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
