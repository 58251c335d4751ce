package embed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"perdure/membership"
	"perdure/partition/identity"
)

// A step is the next action of a node without data, from the others' gossip. Exactly one of its kinds holds:
// join a cluster, found one, take part in one that another founds, or wait.
type step struct {
	// join is the cluster to join; contacts are peer addresses of its members.
	join     string
	contacts []string
	// found: this node creates the cluster of founders.
	found    bool
	founders []identity.Founder
	// accept is the cluster that another founds with the same founders.
	accept     string
	partitions uint32
	// wait is the reason to wait.
	wait string
}

// nextStep decides what a node without data does next: wait, found a cluster, accept a founding or join. One set of
// nodes never forms two clusters: only the node with the lowest id founds, it needs every expected member, and a
// member takes part in one founding at most, with exactly the founders that it sees itself. An error is
// final: the node refuses to start.
func nextStep(self membership.Member, heard []membership.Member) (step, error) {
	clusters := map[string][]string{}
	var ids []string
	var fresh []membership.Member
	for _, m := range heard {
		switch {
		case m.ClusterID != "":
			if clusters[m.ClusterID] == nil {
				ids = append(ids, m.ClusterID)
			}
			clusters[m.ClusterID] = append(clusters[m.ClusterID], m.PeerAddr)
		case m.ServerID != self.ServerID:
			fresh = append(fresh, m)
		}
	}
	switch {
	case len(ids) > 1:
		return step{}, fmt.Errorf("the addresses of --join lead to %d clusters (%s): a node can be a member of one", len(ids), strings.Join(ids, ", "))
	case len(ids) == 1:
		return step{join: ids[0], contacts: clusters[ids[0]]}, nil
	}
	fresh = append(fresh, self)
	slices.SortFunc(fresh, func(a, b membership.Member) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.ServerID, b.ServerID))
	})
	var names []string
	for i, m := range fresh {
		if i > 0 && fresh[i-1].NodeID == m.NodeID {
			return step{wait: fmt.Sprintf("two nodes call themselves %s (%s and %s): --node-id must be different on each", m.NodeID, fresh[i-1].PeerAddr, m.PeerAddr)}, nil
		}
		if why := disagree(self, m); why != "" {
			return step{wait: why}, nil
		}
		names = append(names, m.NodeID)
	}
	expect := int(self.BootstrapExpect)
	switch {
	case len(fresh) < expect:
		return step{wait: fmt.Sprintf("%d of %d members are here: %s", len(fresh), expect, strings.Join(names, ", "))}, nil
	case len(fresh) > expect:
		return step{wait: fmt.Sprintf("%d nodes (%s) want to make a cluster of %d: stop those that do not belong to it, or raise --bootstrap-expect on all",
			len(fresh), strings.Join(names, ", "), expect)}, nil
	}
	s := step{}
	for _, m := range fresh {
		s.founders = append(s.founders, identity.Founder{NodeID: m.NodeID, ServerID: m.ServerID, PeerAddr: m.PeerAddr})
	}
	own := digest(s.founders)
	for _, m := range fresh {
		if _, d, takesPart := splitFounding(m.Founding); takesPart && d != own {
			return step{wait: fmt.Sprintf("node %s takes part in making a cluster of other members; if their data was removed, remove that of %s too", m.NodeID, m.NodeID)}, nil
		}
	}
	founder := fresh[0]
	if founder.ServerID == self.ServerID {
		s.found = true
		for _, m := range fresh {
			s.partitions = max(s.partitions, m.Partitions)
		}
		return s, nil
	}
	cluster, _, founding := splitFounding(founder.Founding)
	if !founding {
		s.wait = "node " + founder.NodeID + " is about to make the cluster"
		return s, nil
	}
	s.accept, s.partitions = cluster, founder.Partitions
	return s, nil
}

// disagree says which settings of two nodes keep them from making a cluster together, or "".
func disagree(self, m membership.Member) string {
	differ := func(flag string, theirs, ours any) string {
		return fmt.Sprintf("node %s was started with --%s %v, this one with %v: they must agree", m.NodeID, flag, theirs, ours)
	}
	switch {
	case m.BootstrapExpect != self.BootstrapExpect:
		return differ("bootstrap-expect", m.BootstrapExpect, self.BootstrapExpect)
	case m.Partitions != self.Partitions && m.Partitions != 0 && self.Partitions != 0:
		return differ("partitions", m.Partitions, self.Partitions)
	case m.LogStore != self.LogStore:
		return differ("log-store", m.LogStore, self.LogStore)
	}
	return ""
}

// digest identifies a set of founders, in their order.
func digest(founders []identity.Founder) string {
	h := xxhash.New()
	for _, f := range founders {
		fmt.Fprintf(h, "%q %q %q\n", f.NodeID, f.ServerID, f.PeerAddr)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// founding is the gossip state of a member that takes part in making a cluster.
func founding(cluster string, founders []identity.Founder) string {
	return cluster + ":" + digest(founders)
}

func splitFounding(s string) (cluster, digest string, ok bool) { return strings.Cut(s, ":") }
