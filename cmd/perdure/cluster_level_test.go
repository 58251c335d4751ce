package main

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// In a rolling upgrade the status names the nodes that keep the feature level down, and then the command that
// raises it.
func TestLevelNote(t *testing.T) {
	node := func(id string, level uint64) *perdurev1.ClusterNode {
		return &perdurev1.ClusterNode{NodeId: id, FeatureLevel: level}
	}
	at := func(levels ...uint64) (out []*perdurev1.ClusterPartition) {
		for _, level := range levels {
			out = append(out, &perdurev1.ClusterPartition{FeatureLevel: level})
		}
		return out
	}
	for _, c := range []struct {
		cluster    uint64
		nodes      []*perdurev1.ClusterNode
		partitions []*perdurev1.ClusterPartition
		want       string
	}{
		{5, []*perdurev1.ClusterNode{node("n1", 5), node("n2", 5)}, at(5, 5), ""},
		{5, []*perdurev1.ClusterNode{node("n1", 5), node("n2", 0)}, at(5, 5), ""},
		{0, []*perdurev1.ClusterNode{node("n1", 5), node("n2", 5)}, at(5, 5), ""},
		{4, []*perdurev1.ClusterNode{node("n1", 5), node("n2", 4), node("n3", 0)}, at(4, 4),
			"the cluster stays at feature level 4 until n2 and n3 run a version that knows 5"},
		{4, []*perdurev1.ClusterNode{node("n1", 5), node("n2", 5)}, at(4, 4),
			"every node knows feature level 5, the cluster is at 4: perdure cluster upgrade raises it"},
		{5, []*perdurev1.ClusterNode{node("n1", 5), node("n2", 5)}, at(4, 5, 3, 0), "feature level 5 is not reached yet in 2 partitions"},
		{5, []*perdurev1.ClusterNode{node("n1", 5)}, at(4), "feature level 5 is not reached yet in 1 partition"},
	} {
		if got := levelNote(&perdurev1.ClusterStatus{FeatureLevel: c.cluster, Nodes: c.nodes, Partitions: c.partitions}); got != c.want {
			t.Errorf("%v, %v: %q, must be %q", c.nodes, c.partitions, got, c.want)
		}
	}
}
