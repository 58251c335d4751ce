package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/identity"
)

// TestRebuild: a replica whose state is lost halts and keeps nobody from anything; it is made anew from the
// others, with one command, at whichever node.
func TestRebuild(t *testing.T) {
	all := newClusterWith(t, 3, neverActs)
	made := 0
	create := func(n int) {
		t.Helper()
		for range n {
			at := all[made%3]
			if at.Node == nil {
				at = all[0]
			}
			if _, err := at.router.Propose(bg(t), createCmd(fmt.Sprintf("p%d", made))); err != nil {
				t.Fatalf("p%d at %s: %v", made, at.cfg.NodeID, err)
			}
			made++
		}
	}
	create(60)
	for _, c := range []struct {
		name string
		harm func(m *member)
	}{
		{"a healthy follower", nil},
		{"a lost state", func(m *member) {
			if err := m.cfg.FS.RemoveAll("data/" + identity.StateDir(1)); err != nil {
				t.Fatal(err)
			}
		}},
		{"a damaged state", func(m *member) { damage(t, m.cfg.FS, "data/"+identity.StateDir(1)) }},
		{"one that came back a moment ago", nil},
	} {
		name, harm := c.name, c.harm
		t.Log(name)
		victim := all[2]
		if harm != nil {
			victim.stop(t)
			harm(victim)
			victim.start(t)
			waitFor(t, "the replica to halt", func() bool { return victim.router.slots[1].Load().halted() != nil },
				func() string { return fmt.Sprint(victim.NotReady()) })
			// Node 3 answers for partition 1 all the same.
			create(30)
			if _, _, err := victim.router.Query(bg(t), Stale, promiseQuery(idIn(all[0].router, 1, "p"))); err == nil {
				t.Error("a promise that nobody made was found")
			}
		}
		// Writes go on meanwhile, and the victim makes markers: none of them may stand for what it then lacks.
		busy, quiet := context.WithCancel(context.Background())
		var writers sync.WaitGroup
		t.Cleanup(func() { quiet(); writers.Wait() }) // also if the test ends before
		writers.Go(func() {
			for busy.Err() == nil {
				id := fmt.Sprintf("p%d", made)
				if _, err := all[0].router.Propose(bg(t), createCmd(id)); err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				made++
				if r := victim.router.slots[1].Load(); r.raft != nil {
					_ = r.Cover() // it may be on its way down
				}
			}
		})
		reply, err := rebuildAt(t, all[0], &perdurev1.RebuildReplicaRequest{Partition: 1, NodeId: "n3"})
		quiet()
		writers.Wait()
		if err != nil || reply.Applied == 0 {
			t.Fatalf("%s: %v, %v", name, reply, err)
		}
		ready(t, victim.Node)
		create(30)
		for p := range uint32(3) {
			equalReplicas(t, all, p)
		}
		// What was rebuilt survives a restart.
		victim.stop(t)
		create(9)
		victim.start(t)
		ready(t, victim.Node)
		for p := range uint32(3) {
			equalReplicas(t, all, p)
		}
	}
}

// TestRebuildRepeated: the same command again does nothing, and says that it did nothing.
func TestRebuildRepeated(t *testing.T) {
	log, logged := newLog(t)
	all := newClusterWith(t, 3, neverActs, func(cfg *Config) { cfg.Logger = log })
	in := &perdurev1.RebuildReplicaRequest{Partition: 1, NodeId: "n3"}
	if first, err := rebuildAt(t, all[0], in); err != nil || first.DoneMsAgo != 0 || !logged.has("event=replica_renewed") || !logged.has("event=replica_rebuilt") {
		t.Fatalf("the first: %v, %v", first, err)
	}
	if kept := len(all[2].status().Kept); kept != 1 || logged.has("event=rebuild_repeated") {
		t.Fatalf("%d former replicas are kept", kept)
	}
	for _, at := range []*member{all[0], all[2]} {
		again, err := rebuildAt(t, at, in)
		if err != nil || again.DoneMsAgo == 0 {
			t.Fatalf("again, at %s: %v, %v", at.cfg.NodeID, again, err)
		}
	}
	if kept := len(all[2].status().Kept); kept != 1 || !logged.has("event=rebuild_repeated") {
		t.Fatalf("%d former replicas are kept after the repetitions", kept)
	}
}

// TestRebuildFailuresToldOnce: a command that is repeated for as long as there is hope fills no log.
func TestRebuildFailuresToldOnce(t *testing.T) {
	log, logged := newLog(t)
	wall := newHandClock()
	n := &Node{log: log, clock: wall, unbuilt: map[uint32]*rebuildFailures{}}
	lines := func(what string) int { return strings.Count(logged.String(), what) }
	later := fmt.Errorf("its leadership could not be handed on: %w", errTryLater(1, "nobody can take it now"))
	for range 4 {
		n.tellNotRebuilt(1, later, false)
		n.tellNotRebuilt(1, errors.New("no space left"), false)
	}
	if lines("level=WARN") != 1 || lines("level=ERROR") != 1 {
		t.Fatalf("of two reasons, four times each, was told:\n%s", logged.String())
	}
	n.tellNotRebuilt(2, later, true) // of another partition, and that replica is down now
	if lines("level=WARN") != 1 || lines("level=ERROR") != 2 {
		t.Errorf("of another partition was told:\n%s", logged.String())
	}
	wall.advance(rebuiltJustNow + time.Second)
	n.tellNotRebuilt(1, later, false)
	if lines("level=WARN") != 2 {
		t.Errorf("later was told:\n%s", logged.String())
	}
}

// rebuildAt has an operator's command carried out that must not be refused in haste: who is told to try later was
// waited for first.
func rebuildAt(t *testing.T, m *member, in *perdurev1.RebuildReplicaRequest) (reply *perdurev1.RebuildReplicaResponse, err error) {
	t.Helper()
	waitFor(t, "it to be rebuilt", func() bool {
		began := time.Now()
		reply, err = m.Operator().Rebuild(bg(t), in)
		return reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER || time.Since(began) < statusPatience
	}, func() string { return fmt.Sprint(err) })
	return reply, err
}

// damage flips a byte in the middle of a store's manifest.
func damage(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		if !strings.HasPrefix(name, "MANIFEST") {
			continue
		}
		f, err := fs.OpenReadWrite(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		at := st.Size() / 2
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x10
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no manifest in %v", names)
}

// TestJudge: a replica that differs from two others that agree is in the minority; it is not when the others
// cannot tell, or differ as well.
func TestJudge(t *testing.T) {
	replica := func(applied, sum uint64, marks ...uint64) *commandv1.ReplicaStatus {
		r := &commandv1.ReplicaStatus{Applied: applied, Checksum: sum}
		for i := 0; i+1 < len(marks); i += 2 {
			r.Marks = append(r.Marks, &commandv1.ChecksumMark{Index: marks[i], Checksum: marks[i+1]})
		}
		return r
	}
	said := func(rs ...*commandv1.ReplicaStatus) (out []*commandv1.NodeStatus) {
		for _, r := range rs {
			if r == nil {
				out = append(out, nil)
				continue
			}
			out = append(out, &commandv1.NodeStatus{Replicas: []*commandv1.ReplicaStatus{r}})
		}
		return out
	}
	halted := replica(500, 7)
	halted.Halted = "damaged"
	for name, c := range map[string]struct {
		own      *commandv1.ReplicaStatus
		others   []*commandv1.NodeStatus
		differs  bool
		minority bool
	}{
		"equal":                   {replica(500, 5, 256, 1), said(replica(500, 5, 256, 1), replica(300, 9, 256, 1)), false, false},
		"nothing in common":       {replica(500, 5), said(replica(300, 9), replica(400, 8)), false, false},
		"others agree":            {replica(500, 5, 256, 2), said(replica(501, 6, 256, 1), replica(300, 9, 256, 1)), true, true},
		"an old mark":             {replica(900, 5, 256, 2, 512, 3), said(replica(300, 9, 256, 1), replica(301, 8, 256, 1)), true, true},
		"all differ":              {replica(500, 5), said(replica(500, 6), replica(500, 7)), true, false},
		"one of two":              {replica(500, 5), said(replica(500, 6), nil), true, false},
		"the other is the odd":    {replica(500, 5), said(replica(500, 5), replica(500, 7)), true, false},
		"the halted do not count": {replica(500, 5), said(replica(500, 5), halted), false, false},
		"most of four":            {replica(500, 1), said(replica(500, 2), replica(500, 2), replica(500, 2), replica(500, 3)), true, true},
	} {
		d := judge(c.own, c.others, len(c.others)+1)
		if (d != nil) != c.differs || d != nil && d.minority != c.minority {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
