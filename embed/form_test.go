package embed

import (
	"strings"
	"testing"

	"perdure/membership"
)

func freshMember(node string) membership.Member {
	return membership.Member{NodeID: node, ServerID: node + "-1", PeerAddr: node + ":1", BootstrapExpect: 3, LogStore: "pebble"}
}

func TestNextStep(t *testing.T) {
	n1, n2, n3, n4 := freshMember("n1"), freshMember("n2"), freshMember("n3"), freshMember("n4")
	others := []membership.Member{n1, n2, n3}
	// The lowest founds, the others wait for it, then take part.
	s, err := nextStep(n1, others)
	if err != nil || !s.found || len(s.founders) != 3 || s.founders[0].ServerID != "n1-1" {
		t.Fatalf("%+v, %v", s, err)
	}
	announced := n1
	announced.Founding, announced.Partitions = founding("c1", s.founders), 8
	if s, err := nextStep(n2, others); err != nil || s.found || s.accept != "" || !strings.Contains(s.wait, "n1 is about to") {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := nextStep(n2, []membership.Member{announced, n2, n3}); err != nil || s.accept != "c1" || s.partitions != 8 || len(s.founders) != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	waits := func(what, why string, self membership.Member, heard ...membership.Member) {
		t.Helper()
		s, err := nextStep(self, heard)
		if err != nil || s.found || s.accept != "" || s.join != "" || !strings.Contains(s.wait, why) {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
	waits("alone", "1 of 3 members are here: n1", n1, n1)
	waits("two", "2 of 3 members are here: n1, n3", n3, n1, n3)
	waits("four", "4 nodes (n1, n2, n3, n4)", n1, n1, n2, n3, n4)
	twin := n2
	twin.ServerID, twin.PeerAddr = "n2-2", "elsewhere:1"
	waits("twins", "two nodes call themselves n2", n1, n1, n2, twin)
	other := n2
	other.BootstrapExpect = 5
	waits("other number", "--bootstrap-expect 5, this one with 3", n1, n1, other, n3)
	four, eight := n1, n2
	four.Partitions, eight.Partitions = 4, 8
	waits("other partitions", "--partitions 8, this one with 4", four, four, eight, n3)
	bolt := n3
	bolt.LogStore = "boltdb"
	waits("other log store", "--log-store boltdb", n1, n1, n2, bolt)
	// One that takes part elsewhere is not taken along, and a founder that sees others is not followed.
	elsewhere := n2
	elsewhere.Founding = "c9:0000000000000000"
	waits("elsewhere", "node n2 takes part in making a cluster of other members", n1, n1, elsewhere, n3)
	strange := n1
	strange.Founding = "c9:0000000000000000"
	waits("others seen", "node n1 takes part in making a cluster of other members", n2, strange, n2, n3)
	// The node joins an existing cluster, even if other nodes wait; two clusters are an error.
	member := freshMember("m1")
	member.ClusterID = "c1"
	if s, err := nextStep(n1, []membership.Member{n1, n2, n3, member}); err != nil || s.join != "c1" || len(s.contacts) != 1 || s.contacts[0] != "m1:1" {
		t.Errorf("%+v, %v", s, err)
	}
	second := freshMember("m2")
	second.ClusterID = "c2"
	if _, err := nextStep(n1, []membership.Member{n1, member, second}); err == nil || !strings.Contains(err.Error(), "2 clusters") {
		t.Errorf("%v", err)
	}
}
