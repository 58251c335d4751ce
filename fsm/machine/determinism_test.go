package machine

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/internal/testkit"
)

// Each replica applies a log with its own restarts, cache size and batches. All must reach the same bytes,
// replies, effects and checksum.
func TestReplicasAgree(t *testing.T) {
	seeds, actions := testkit.Choose(3, 3, 12), testkit.Choose(700, 800, 1500)
	entries := 0
	for seed := range seeds {
		s := simulate(t, seeded(int64(1000+seed)), actions)
		for _, p := range s.parts {
			entries += len(p.log)
			for _, r := range []replica{
				{name: "in one go", reopen: 1 << 30, batch: 1},
				{name: "reopened every time", reopen: 1, batch: 1},
				{name: "reopened now and then", reopen: 7, batch: 1},
				{name: "one cached execution", reopen: 1 << 30, batch: 1, cached: 1},
				{name: "few cached bytes", reopen: 1 << 30, batch: 1, bytes: 1},
				{name: "no cached reads", reopen: 1 << 30, batch: 1, reads: -1},
				{name: "few cached reads", reopen: 1 << 30, batch: 1, reads: 16 << 10},
				{name: "few cached reads and executions", reopen: 50, batch: 2, reads: 8 << 10, cached: 1},
				{name: "batches of three", reopen: 1 << 30, batch: 3},
				{name: "all in one batch", reopen: 1 << 30, batch: 1 << 30},
				{name: "batches, little cache, unchecked", reopen: 10, batch: 5, cached: 2, unchecked: true},
			} {
				if got := r.follow(t, p); got != "" {
					t.Fatalf("seed %d, partition %d of %d, %s: %s", seed, p.cfg.Partition, len(s.parts), r.name, got)
				}
			}
		}
	}
	t.Logf("%d entries, each applied 12 times", entries)
}

type replica struct {
	name string
	// reopen: a new machine after so many batches; batch: so many entries between two writes.
	reopen, batch int
	cached, bytes int
	// reads are the bytes of cached reads; 0 for the default, under 0 for none.
	reads     int
	unchecked bool
}

// follow applies a partition's log and answers the first difference from what the partition did.
func (r replica) follow(t *testing.T, p *part) string {
	t.Helper()
	cfg := p.cfg
	cfg.CachedExecutions, cfg.CachedBytes, cfg.CachedReads, cfg.CheckInvariants = r.cached, r.bytes, r.reads, !r.unchecked
	below := state.NewMemReader()
	m, err := New(cfg, below)
	if err != nil {
		t.Fatal(err)
	}
	batches, inBatch := 0, 0
	for i, raw := range p.log {
		entry := &commandv1.Entry{}
		if err := proto.Unmarshal(raw, entry); err != nil {
			t.Fatal(err)
		}
		res, err := m.Apply(uint64(i+1), entry)
		if err != nil {
			return err.Error()
		}
		want := p.results[i]
		if !sameProto(res.Replies, want.Replies) {
			return fmt.Sprintf("entry %d is answered\n%v, must be\n%v", i+1, res.Replies, want.Replies)
		}
		if got, want := showEffects(res.Effects), showEffects(want.Effects); !slices.Equal(got, want) {
			return fmt.Sprintf("entry %d has the effects\n%v, must have\n%v", i+1, got, want)
		}
		if inBatch++; inBatch < r.batch && i+1 < len(p.log) {
			continue
		}
		inBatch = 0
		below.Apply(m.Writes())
		m.Committed()
		if batches++; batches%r.reopen == 0 {
			if m, err = New(cfg, below); err != nil {
				return err.Error()
			}
		}
	}
	if m.Checksum() != p.m.Checksum() || m.Clock() != p.m.Clock() || m.Applied() != p.m.Applied() {
		return fmt.Sprintf("checksum %x at %d, must be %x at %d", m.Checksum(), m.Applied(), p.m.Checksum(), p.m.Applied())
	}
	if got, want := whole(below), whole(p.state); got != want {
		return "another state:\n" + difference(want, got)
	}
	return ""
}

// The checksum covers every mutation, and the order of them.
func TestChecksumCovers(t *testing.T) {
	run := func(change func(cmds []*commandv1.Command) []*commandv1.Command) uint64 {
		w := newWorld(t, 1)
		cmds := []*commandv1.Command{startCmd([]byte("1"), "a", "f", "x"), startCmd([]byte("2"), "b", "f", "y"), createPromiseCmd("p", 1000), registerCmd("f")}
		for _, cmd := range change(cmds) {
			w.do(cmd)
		}
		return w.parts[0].m.Checksum()
	}
	sums := []uint64{
		run(func(c []*commandv1.Command) []*commandv1.Command { return c }),
		run(func(c []*commandv1.Command) []*commandv1.Command { return c[:3] }),
		run(func(c []*commandv1.Command) []*commandv1.Command { return c[1:] }),
		run(func(c []*commandv1.Command) []*commandv1.Command { slices.Reverse(c); return c }),
		run(func(c []*commandv1.Command) []*commandv1.Command { c[0].GetStart().Input = []byte("z"); return c }),
		run(func(c []*commandv1.Command) []*commandv1.Command { c[0].Request.Id = []byte("9"); return c }),
		run(func(c []*commandv1.Command) []*commandv1.Command {
			return append(c, terminateCmd("a", ""), terminateCmd("b", ""))
		}),
	}
	for i, a := range sums {
		for j, b := range sums[:i] {
			if a == b {
				t.Errorf("histories %d and %d have the checksum %x", i, j, a)
			}
		}
	}
	if again := run(func(c []*commandv1.Command) []*commandv1.Command { return c }); again != sums[0] || again == 0 {
		t.Errorf("the same history has %x and %x", again, sums[0])
	}
}
