package directory

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
)

func three() []*commandv1.DirectoryMember {
	var out []*commandv1.DirectoryMember
	for _, n := range []string{"n3", "n1", "n2"} {
		out = append(out, &commandv1.DirectoryMember{NodeId: n, ServerId: n + "-aa", PeerAddr: n + ":1"})
	}
	return out
}

func createCmd(d *commandv1.Directory) *commandv1.DirectoryCommand {
	return &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Create{Create: &commandv1.CreateDirectory{Directory: d}}}
}

func madeCmd(p ...uint32) *commandv1.DirectoryCommand {
	return &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Created{Created: &commandv1.CreatedPartitions{Partitions: p}}}
}

func admitCmd(node, server, addr, replaces string) *commandv1.DirectoryCommand {
	return &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Admit{Admit: &commandv1.AdmitMember{
		Member: &commandv1.DirectoryMember{NodeId: node, ServerId: server, PeerAddr: addr}, Replaces: replaces}}}
}

// TestSlotsAreWhereCommandsGo: the slots that the directory gives a partition are those that place ids in
// it, and every slot has one partition.
func TestSlotsAreWhereCommandsGo(t *testing.T) {
	for _, partitions := range []uint32{1, 3, 4, 5, 7, 16, 100, 256} {
		next := uint32(0)
		for p := range partitions {
			first, last := Slots(p, partitions)
			if first != next || last < first {
				t.Fatalf("%d partitions: partition %d has slots %d to %d, want from %d", partitions, p, first, last, next)
			}
			next = last + 1
		}
		if next != id.Slots {
			t.Fatalf("%d partitions: the slots end at %d", partitions, next)
		}
		for i := range 1000 {
			name := string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
			p := state.PartitionOf("default", name, partitions)
			if s := uint32(id.Slot("default", name)); func() bool { f, l := Slots(p, partitions); return s < f || s > l }() {
				t.Fatalf("%q has slot %d and partition %d of %d", name, s, p, partitions)
			}
		}
	}
}

func TestLife(t *testing.T) {
	m := &Machine{}
	refuse := func(cmd *commandv1.DirectoryCommand) {
		t.Helper()
		before := proto.CloneOf(m.State())
		if err := m.Apply(cmd); !api.Is(err, perdurev1.Reason_REASON_MEMBERSHIP_REFUSED) {
			t.Errorf("%v: %v", cmd, err)
		}
		if !proto.Equal(before, m.State()) {
			t.Errorf("%v was refused and changed something", cmd)
		}
	}
	apply := func(cmd *commandv1.DirectoryCommand, epoch uint64) {
		t.Helper()
		if err := m.Apply(cmd); err != nil || m.State().Epoch != epoch {
			t.Errorf("%v: %v, epoch %d, want %d", cmd, err, m.State().GetEpoch(), epoch)
		}
	}
	refuse(madeCmd(0))
	refuse(admitCmd("n1", "n1-bb", "n1:1", "n1-aa"))
	refuse(createCmd(nil))
	refuse(&commandv1.DirectoryCommand{})
	apply(createCmd(New("c", "pebble", 4, three())), 1)
	apply(createCmd(New("c", "pebble", 4, three())), 1)
	refuse(createCmd(New("other", "pebble", 4, three())))
	for p, want := range []string{"n1", "n2", "n3", "n1"} {
		if got := m.State().Placements[p].Preferred; got != want {
			t.Errorf("partition %d prefers %s, want %s", p, got, want)
		}
	}
	// No member is replaced before the cluster exists; an address may change.
	refuse(admitCmd("n1", "n1-bb", "n1:1", "n1-aa"))
	apply(admitCmd("n1", "n1-aa", "n1:2", ""), 2)
	apply(admitCmd("n1", "n1-aa", "n1:2", ""), 2)
	refuse(madeCmd(9))
	apply(madeCmd(0, 1, 2), 3)
	if m.State().State != commandv1.DirectoryState_DIRECTORY_STATE_CREATING {
		t.Error("ready too early")
	}
	apply(madeCmd(3), 4)
	apply(madeCmd(3), 4)
	if m.State().State != commandv1.DirectoryState_DIRECTORY_STATE_READY {
		t.Error("not ready")
	}
	refuse(admitCmd("n4", "n4-aa", "n4:1", ""))
	refuse(admitCmd("n1", "n1-bb", "n1:1", "n1-zz"))
	apply(admitCmd("n1", "n1-bb", "n1:3", "n1-aa"), 5)
	refuse(admitCmd("n1", "n1-cc", "n1:1", "n1-aa"))
	if got := m.State().Members[0]; got.ServerId != "n1-bb" || got.SinceEpoch != 5 || got.PeerAddr != "n1:3" {
		t.Errorf("member %v", got)
	}
}

// TestSuccessor: only a directory with an epoch after a server's admission proves its replacement.
func TestSuccessor(t *testing.T) {
	m := &Machine{}
	var shown []*commandv1.Directory // by epoch, from 1 on
	for _, cmd := range []*commandv1.DirectoryCommand{
		createCmd(New("c", "pebble", 1, three())), madeCmd(0), admitCmd("n1", "n1-bb", "n1:1", "n1-aa"),
		admitCmd("n2", "n2-aa", "n2:7", ""), admitCmd("n1", "n1-cc", "n1:1", "n1-bb"),
	} {
		if err := m.Apply(cmd); err != nil {
			t.Fatal(err)
		}
		shown = append(shown, m.State())
	}
	for who, c := range map[string]struct {
		since uint64
		by    []string // the successor by each directory
	}{
		"n1-aa": {1, []string{"", "", "n1-bb", "n1-bb", "n1-cc"}},
		"n1-bb": {3, []string{"", "", "", "", "n1-cc"}},
		"n1-cc": {5, []string{"", "", "", "", ""}},
	} {
		for i, d := range shown {
			for known := range uint64(7) {
				want := c.by[i]
				if d.Epoch < known {
					want = ""
				}
				if got := Successor(d, "n1", who, c.since, known).GetServerId(); got != want {
					t.Errorf("%s by epoch %d, known %d: %q, want %q", who, d.Epoch, known, got, want)
				}
			}
		}
		if since, ok := Holds(shown[c.since-1], who); !ok || since != c.since {
			t.Errorf("%s has its place since %d, %v", who, since, ok)
		}
	}
	if _, ok := Holds(nil, "n1-aa"); ok || Successor(nil, "n1", "n1-aa", 1, 0) != nil {
		t.Error("no directory says something")
	}
	if Successor(shown[4], "n9", "n9-aa", 0, 0) != nil {
		t.Error("a node that is no member has a successor")
	}
}
