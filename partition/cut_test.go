package partition

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/cut"
	"perdure/fsm"
	"perdure/fsm/audit"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/internal/clock"
)

// startSenders has executions of every partition signal executions of all others, without pause, until the returned
// function is called.
func startSenders(t *testing.T, at *member) (end func()) {
	t.Helper()
	partitions := at.router.Partitions()
	targets := map[uint32]string{}
	for p := range partitions {
		targets[p] = idIn(at.Router(), p, "target")
		must(t, at.Router(), startCmd("start "+targets[p], targets[p], "absent", ""))
	}
	ctx, cancel := context.WithCancel(bg(t))
	w := at.Dispatcher().Attach(spec("sender", 8, "send"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			id := idIn(at.Router(), uint32(i)%partitions, fmt.Sprint("sender-", i))
			// A call that a change of the leader interrupts is not repeated: what was sent is sent once.
			_, _ = at.Router().Propose(ctx, startCmd("start "+id, id, "send", ""))
		}
	})
	wg.Go(func() {
		for {
			d, ok := w.Next(ctx)
			if !ok {
				return
			}
			c := &perdurev1.Commit{Task: d.Token, KnownSeq: 1}
			for k := range uint32(4) {
				p, to := fmt.Sprintf("%s:%d", d.Token.Id, k), targets[k%partitions]
				c.Events = append(c.Events, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
					PromiseId: p, Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "go", RetryPolicy: "attempts=1"}}})
				c.Sends = append(c.Sends, &perdurev1.Send{PromiseId: p, What: &perdurev1.Send_Signal{Signal: &perdurev1.SignalSend{Id: to, Name: "go"}}})
			}
			c.Events = append(c.Events, returnEvent("sent"))
			_, _ = at.Router().Propose(ctx, commitCmd("commit "+d.Token.Id, c))
			w.Finished(d.Token)
			w.AddCapacity(1)
		}
	})
	end = sync.OnceFunc(func() { cancel(); wg.Wait(); w.Detach() })
	t.Cleanup(end)
	return end
}

// copyOf reads a checkpoint by the operators' calls and opens the copy.
func copyOf(t *testing.T, m *member, n uint64, c *perdurev1.Checkpoint) *fsm.ReadOnly {
	t.Helper()
	list, err := m.Operator().ListCheckpoint(bg(t), &perdurev1.ListFilesRequest{Cut: n, Partition: c.Partition})
	if err != nil || list.Index != c.Index {
		t.Fatalf("the files of %v: %v, %v", c, list, err)
	}
	files := vfs.NewMem()
	if err := files.MkdirAll("copy", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range list.Files {
		read := func(offset uint64) []byte {
			var b bytes.Buffer
			if err := m.Operator().ReadCheckpoint(bg(t), &perdurev1.ReadFileRequest{Cut: n, Partition: c.Partition, Name: f.Name, Offset: offset}, func(chunk *perdurev1.FileChunk) error {
				if len(chunk.Data) == 0 || len(chunk.Data) > chunkBytes {
					t.Errorf("a chunk of %s has %d bytes", f.Name, len(chunk.Data))
				}
				b.Write(chunk.Data)
				return nil
			}); err != nil {
				t.Fatalf("%s of %v: %v", f.Name, c, err)
			}
			return b.Bytes()
		}
		whole := read(0)
		if rest := read(f.Size / 2); uint64(len(whole)) != f.Size || !bytes.Equal(rest, whole[f.Size/2:]) || len(read(f.Size)) != 0 {
			t.Fatalf("%s has %d bytes; %d were read, %d from the middle on", f.Name, f.Size, len(whole), len(rest))
		}
		to, err := files.Create(files.PathJoin("copy", f.Name), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = to.Write(whole)
		}
		if err == nil {
			err = to.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := fsm.OpenCheckpoint("copy", fsm.Options{FS: files})
	if err != nil {
		t.Fatalf("checkpoint %v: %v", c, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// soundCut opens every checkpoint of a cut. It checks that the replicas' are equal, that each state is sound, and that both
// ends of every channel fit. It returns how many messages were sent, and how many of them are on their way.
func soundCut(t *testing.T, all []*member, got *perdurev1.CutResponse) (sent, under uint64) {
	t.Helper()
	of := make([]*fsm.ReadOnly, got.Partitions)
	for _, c := range got.Checkpoints {
		var m *member
		for _, other := range all {
			if other.cfg.NodeID == c.Node {
				m = other
			}
		}
		r := copyOf(t, m, got.Cut, c)
		if st := r.Status(); st.Applied != c.Index {
			t.Errorf("the checkpoint %v is of index %d", c, st.Applied)
		}
		if first := of[c.Partition]; first == nil {
			of[c.Partition] = r
		} else if first.Status().Checksum != r.Status().Checksum || first.Status().Applied != r.Status().Applied {
			t.Errorf("cut %d: replicas of partition %d have different checkpoints: %+v, %+v", got.Cut, c.Partition, first.Status(), r.Status())
		}
	}
	views := make([]state.Reader, len(of))
	for p, r := range of {
		if r == nil {
			t.Fatalf("cut %d has no checkpoint of partition %d: %v", got.Cut, p, got.Checkpoints)
		}
		if err := r.View(func(v state.Reader) error {
			views[p] = v
			in, err := state.MetaNumber(v, state.MetaCut)
			if in != got.Cut {
				t.Errorf("the checkpoint of partition %d in cut %d is in cut %d", p, got.Cut, in)
			}
			report, err2 := audit.Run(v, 0, state.Partition{Number: uint32(p), Count: got.Partitions})
			if len(report.Violations) > 0 {
				t.Errorf("the checkpoint of partition %d in cut %d: %v", p, got.Cut, report.Violations)
			}
			if err == nil {
				err = err2
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for from, src := range views {
		for to, dst := range views {
			if from == to {
				continue
			}
			c := channelIn(t, src, dst, uint32(from), uint32(to))
			if err := c.Check(); err != nil {
				t.Errorf("cut %d, from partition %d to %d: %v", got.Cut, from, to, err)
			}
			sent += c.Sent.Last
			under += c.Sent.Last - c.Received.Last
		}
	}
	return sent, under
}

// channelIn is one channel as two states have it.
func channelIn(t *testing.T, src, dst state.Reader, from, to uint32) cut.Channel {
	t.Helper()
	sent, err := query.Sent(src, to)
	epoch, through, err2 := query.Delivered(dst, from)
	_, msgs, err3 := query.Outgoing(src, to, state.Channel{}, 1, 1<<20)
	if err != nil || err2 != nil || err3 != nil {
		t.Fatal(err, err2, err3)
	}
	c := cut.Channel{Sent: cut.End{Epoch: sent.Epoch, Last: sent.Last}, Received: cut.End{Epoch: epoch, Last: through}, First: cut.End{Epoch: sent.Epoch, Last: sent.Last + 1}}
	if len(msgs) > 0 {
		c.First.Last = msgs[0].Seq
	}
	return c
}

// TestCut: whichever node is asked, while messages are under way and leaders change, the checkpoints of a cut are
// consistent, and each replica's are the same.
func TestCut(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	end := startSenders(t, all[0])
	var last *perdurev1.CutResponse
	sent, under, replicas := uint64(0), uint64(0), 0
	round := 0
	for ; round < 6 || under == 0 && round < 40; round++ {
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			if round%2 == 1 {
				move(t, all, uint32(round/2))
			}
		}()
		// Commands are under way before the cut, so that it falls between them.
		clock.Wait(bg(t), clock.System{}, cutPoll)
		got, err := all[round%3].Operator().Cut(bg(t), &perdurev1.CutRequest{})
		<-moved
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if last != nil && got.Cut <= last.Cut || got.Partitions != 3 || got.Cluster != "c1" || got.Level != state.FeatureLevel {
			t.Errorf("round %d: %v after cut %d", round, got, last.GetCut())
		}
		n, on := soundCut(t, all, got)
		sent, under, replicas, last = max(sent, n), under+on, replicas+len(got.Checkpoints), got
	}
	end()
	t.Logf("%d messages were sent, %d were on their way in some cut; %d of %d replicas had a checkpoint", sent, under, replicas, round*9)
	if sent == 0 || under == 0 {
		t.Errorf("%d messages were sent, %d were on their way in some cut: the cuts show nothing", sent, under)
	}
	for p := range uint32(3) {
		equalReplicas(t, all, p)
	}
}

// TestCheckpointsAreKeptAndReleased: a node keeps two cuts, over a restart, and Release removes one from all nodes.
func TestCheckpointsAreKeptAndReleased(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 2, neverActs)
	var cuts []uint64
	for range 3 {
		got, err := all[0].Operator().Cut(bg(t), &perdurev1.CutRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Checkpoints) != 6 {
			t.Errorf("cut %d has the checkpoints %v, want one of each of six replicas", got.Cut, got.Checkpoints)
		}
		cuts = append(cuts, got.Cut)
	}
	all[1].stop(t)
	all[1].start(t)
	ready(t, all[1].Node)
	list := func(m *member, n uint64) error {
		_, err := m.Operator().ListCheckpoint(bg(t), &perdurev1.ListFilesRequest{Cut: n, Partition: 1})
		return err
	}
	for _, m := range all {
		if err := list(m, cuts[0]); reasonOf(err) != perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND {
			t.Errorf("%s: the third last cut: %v", m.cfg.NodeID, err)
		}
		for _, n := range cuts[1:] {
			if err := list(m, n); err != nil {
				t.Errorf("%s: cut %d: %v", m.cfg.NodeID, n, err)
			}
		}
	}
	for _, name := range []string{"../../IDENTITY", "..", "absent"} {
		err := all[0].Operator().ReadCheckpoint(bg(t), &perdurev1.ReadFileRequest{Cut: cuts[2], Name: name}, func(*perdurev1.FileChunk) error { return nil })
		if reasonOf(err) != perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND {
			t.Errorf("the file %q: %v", name, err)
		}
	}
	released := uint32(0)
	for range 2 { // the second finds nothing
		var got *perdurev1.ReleaseCutResponse
		waitFor(t, "all nodes to answer", func() bool {
			var err error
			if got, err = all[2].Operator().ReleaseCut(bg(t), &perdurev1.ReleaseCutRequest{Cut: cuts[1]}); err != nil {
				t.Fatal(err)
			}
			released += got.Released
			return len(got.Unreachable) == 0
		}, func() string { return fmt.Sprint(got) })
		if released != 6 {
			t.Errorf("%d checkpoints were released, want those of six replicas", released)
		}
	}
	for _, m := range all {
		if err := list(m, cuts[1]); reasonOf(err) != perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND {
			t.Errorf("%s: the released cut: %v", m.cfg.NodeID, err)
		}
		if err := list(m, cuts[2]); err != nil {
			t.Errorf("%s: the last cut: %v", m.cfg.NodeID, err)
		}
	}
}

// TestCutNeedsTheLevel: a cluster below the level of cuts refuses, and enters none.
func TestCutNeedsTheLevel(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 2, neverActs, func(c *Config) { c.featureLevel = state.LevelFunctions - 1 })
	if got, err := all[1].Operator().Cut(bg(t), &perdurev1.CutRequest{}); reasonOf(err) != perdurev1.Reason_REASON_FEATURE_LEVEL {
		t.Errorf("cut below the level: %v, %v", got, err)
	}
	for _, r := range all[0].router.Replicas() {
		if in, err := r.Cut(); in != 0 || err != nil {
			t.Errorf("partition %d is in cut %d, %v", r.ID(), in, err)
		}
	}
}
