package main

import (
	"fmt"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

// rulesText is a node's retention as its setting writes it.
func rulesText(r *perdurev1.RetentionStatus) string {
	if len(r.GetRules()) == 0 {
		return "forever"
	}
	return printable(strings.Join(r.GetRules(), ","))
}

// retentionText says for how long the cluster keeps what has ended, and what its nodes have purged; empty if no node says
// so. Nodes that differ are in retentionNotes.
func retentionText(s *perdurev1.ClusterStatus) string {
	text, purged, waiting := "", uint64(0), uint64(0)
	for _, n := range s.GetNodes() {
		r := n.GetRetention()
		if r == nil {
			continue
		}
		switch rules := rulesText(r); text {
		case "", rules:
			text = rules
		default:
			text = "nodes differ"
		}
		purged, waiting = purged+r.GetPurged(), waiting+r.GetWaiting()
	}
	if purged > 0 {
		text += fmt.Sprintf("; %d purged since the nodes started", purged)
	}
	if waiting > 0 {
		text += fmt.Sprintf("; %d to be purged", waiting)
	}
	return text
}

// retentionNotes names nodes with another retention than others, and nodes that purge nothing.
func retentionNotes(s *perdurev1.ClusterStatus) (notes []string) {
	byRules := map[string][]string{}
	var order []string
	for _, n := range s.GetNodes() {
		r := n.GetRetention()
		if r == nil {
			continue
		}
		rules := rulesText(r)
		if byRules[rules] == nil {
			order = append(order, rules)
		}
		byRules[rules] = append(byRules[rules], orDash(n.GetNodeId()))
		if r.GetIdle() != "" {
			notes = append(notes, fmt.Sprintf("node %s purges nothing: %s", orDash(n.GetNodeId()), sentences(r.GetIdle())))
		}
	}
	if len(order) > 1 {
		for i, rules := range order {
			order[i] = rules + " on " + listText(byRules[rules])
		}
		notes = append(notes, "the nodes have different --retention: "+strings.Join(order, "; "))
	}
	return notes
}
