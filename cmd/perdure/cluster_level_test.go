package main

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// In a rolling upgrade the status names the nodes that keep the feature level down.
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
		nodes      []*perdurev1.ClusterNode
		partitions []*perdurev1.ClusterPartition
		want       string
	}{
		{[]*perdurev1.ClusterNode{node("n1", 5), node("n2", 5)}, at(5, 5), ""},
		{[]*perdurev1.ClusterNode{node("n1", 5), node("n2", 0)}, at(5, 5), ""},
		{[]*perdurev1.ClusterNode{node("n1", 0), node("n2", 0)}, at(0, 0), ""},
		{[]*perdurev1.ClusterNode{node("n1", 5), node("n2", 4), node("n3", 0)}, at(4, 5, 3, 0),
			"2 partitions below feature level 5: waiting for newer binaries on n2 and n3"},
		{[]*perdurev1.ClusterNode{node("n1", 5)}, at(4), "1 partition below feature level 5"},
	} {
		if got := levelNote(&perdurev1.ClusterStatus{Nodes: c.nodes, Partitions: c.partitions}); got != c.want {
			t.Errorf("%v, %v: %q, must be %q", c.nodes, c.partitions, got, c.want)
		}
	}
}
