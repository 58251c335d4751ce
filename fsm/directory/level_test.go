package directory

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// The cluster's level rises only to what every member has announced, and a server that knows less is not
// admitted afterwards.
func TestLevels(t *testing.T) {
	m := &Machine{}
	apply := func(cmd *commandv1.DirectoryCommand) error { t.Helper(); return m.Apply(cmd) }
	raiseCmd := func(level uint64) *commandv1.DirectoryCommand {
		return &commandv1.DirectoryCommand{Kind: &commandv1.DirectoryCommand_Raise{Raise: &commandv1.RaiseClusterLevel{Level: level}}}
	}
	announce := func(node, server string, level uint64, replaces string) *commandv1.DirectoryCommand {
		cmd := admitCmd(node, server, node+":1", replaces)
		cmd.GetAdmit().Member.FeatureLevel = level
		return cmd
	}
	refuse := func(cmd *commandv1.DirectoryCommand, says string) {
		t.Helper()
		before := proto.CloneOf(m.State())
		if err := m.Apply(cmd); !api.Is(err, perdurev1.Reason_REASON_FEATURE_LEVEL) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, must say %q", cmd, err, says)
		}
		if !proto.Equal(before, m.State()) {
			t.Errorf("%v was refused and changed something", cmd)
		}
	}
	if err := m.Apply(raiseCmd(1)); !api.Is(err, perdurev1.Reason_REASON_MEMBERSHIP_REFUSED) {
		t.Errorf("without a directory: %v", err)
	}
	for _, cmd := range []*commandv1.DirectoryCommand{createCmd(New("c", "pebble", 1, three())), madeCmd(0), announce("n1", "n1-aa", 7, ""), announce("n2", "n2-aa", 6, "")} {
		if err := apply(cmd); err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
	}
	if s := m.State(); s.Epoch != 2 || s.Members[0].FeatureLevel != 7 || s.Members[0].SinceEpoch != 1 || CommonLevel(s.Members) != 0 {
		t.Errorf("announced: %v", s)
	}
	refuse(raiseCmd(7), "node n2 knows up to 6, node n3 has not been heard from")
	if err := apply(announce("n3", "n3-aa", 8, "")); err != nil || CommonLevel(m.State().Members) != 6 {
		t.Errorf("%v, %v", err, m.State())
	}
	refuse(raiseCmd(7), "node n2 knows up to 6")
	// Back to an earlier program, as long as the level was not raised.
	if err := apply(announce("n2", "n2-aa", 5, "")); err != nil || CommonLevel(m.State().Members) != 5 {
		t.Errorf("%v, %v", err, m.State())
	}
	refuse(raiseCmd(6), "node n2 knows up to 5")
	for _, cmd := range []*commandv1.DirectoryCommand{announce("n2", "n2-aa", 7, ""), raiseCmd(7), raiseCmd(7), raiseCmd(3)} {
		if err := apply(cmd); err != nil {
			t.Errorf("%v: %v", cmd, err)
		}
	}
	if s := m.State(); s.FeatureLevel != 7 || s.Epoch != 2 {
		t.Errorf("raised: %v", s)
	}
	refuse(announce("n2", "n2-aa", 6, ""), "cluster c is at feature level 7, node n2 knows up to 6")
	refuse(announce("n2", "n2-bb", 6, "n2-aa"), "knows up to 6")
	refuse(announce("n2", "n2-bb", 0, "n2-aa"), "knows up to 5")
	// A new address announces no level and keeps the announced one.
	if err := apply(admitCmd("n2", "n2-aa", "n2:9", "")); err != nil || m.State().Members[1].FeatureLevel != 7 || m.State().Epoch != 3 {
		t.Errorf("%v, %v", err, m.State())
	}
	if err := apply(announce("n2", "n2-bb", 8, "n2-aa")); err != nil || m.State().Members[1].FeatureLevel != 8 || m.State().Epoch != 4 {
		t.Errorf("%v, %v", err, m.State())
	}
}
