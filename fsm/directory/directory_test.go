package directory

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
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
	return &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Made{Made: &commandv1.MadePartitions{Partitions: p}}}
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
			p := machine.Place("default", name, partitions)
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
	// Nobody is replaced before the cluster is there; an address may change.
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
