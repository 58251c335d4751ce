package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// diagnose says what is wrong with a cluster, each in a few words, and what is worth knowing though nothing
// is wrong with it.
func diagnose(s *perdurev1.ClusterStatus) (wrong, notes []string) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	led, leaderless := served(s)
	switch s.GetState() {
	case "ready":
	case "creating":
		bad("the cluster is still being made: %d of %s led so far", led, nounText(len(s.GetPartitions()), "partition"))
		leaderless = nil // it will have them
	default:
		bad("the cluster is not ready: %s", orDash(s.GetState()))
	}
	away := map[string]bool{}
	for _, n := range s.GetNodes() {
		away[n.GetNodeId()] = !n.GetReachable()
	}
	if s.GetDirectoryLeader() == "" || away[s.GetDirectoryLeader()] {
		bad("the directory has no leader")
	}
	for _, n := range s.GetNodes() {
		if !n.GetReachable() {
			todo := "start it again if it does not run"
			if strings.Contains(n.GetProblem(), "connection refused") {
				todo = "start it again"
			}
			bad("node %s cannot be reached%s: %s", orDash(n.GetNodeId()), because(n.GetProblem()), todo)
			continue
		}
		if offset := time.Duration(n.GetClockOffsetMs()) * time.Millisecond; offset.Abs() > slowClock {
			note("the clock of node %s is %s", orDash(n.GetNodeId()), offsetText(n.GetClockOffsetMs()))
		}
		if text := diskProblem(n.GetDisk()); text != "" {
			bad("the disk of node %s is %s", orDash(n.GetNodeId()), text)
		}
	}
	switch {
	case len(leaderless) == 1:
		bad("partition %s has no leader", leaderless[0])
	case len(leaderless) > 1:
		bad("partitions %s have no leader", listText(leaderless))
	}
	behind := map[string]int{}
	most := map[string]uint64{}
	for _, p := range s.GetPartitions() {
		if p.GetComparison() == comparedDifferent {
			bad("the replicas of partition %d differ at index %d", p.GetPartition(), p.GetComparedIndex())
		}
		for _, r := range p.GetReplicas() {
			where := fmt.Sprintf("partition %d on node %s", p.GetPartition(), orDash(r.GetNodeId()))
			if a := r.GetAudit(); a.GetFound() > 0 {
				bad("%s has a problem: its state breaks %s (%s): perdure verify names them", where, nounText(int(a.GetFound()), "rule"), listText(rulesOf(a)))
			}
			switch r.GetState() {
			case replicaHalted:
				bad("%s has halted%s: perdure replica rebuild --node %s --partition %d makes it anew", where, because(r.GetProblem()),
					shellWord(r.GetNodeId()), p.GetPartition())
			case replicaUnreachable:
				if !away[r.GetNodeId()] {
					bad("%s cannot be reached%s", where, because(r.GetProblem()))
				}
			case replicaRebuilding:
				note("%s is being rebuilt", where)
			default:
				if r.GetLag() > farBehind {
					behind[r.GetNodeId()]++
					most[r.GetNodeId()] = max(most[r.GetNodeId()], r.GetLag())
				}
			}
		}
	}
	for _, n := range s.GetNodes() {
		if k := behind[n.GetNodeId()]; k > 0 {
			note("node %s is catching up in %s: %d entries behind at most", orDash(n.GetNodeId()), nounText(k, "partition"), most[n.GetNodeId()])
		}
	}
	if text := levelNote(s); text != "" {
		note("%s", text)
	}
	return wrong, append(notes, keptNotes(s)...)
}

// levelNote says how many partitions are at an earlier feature level than some nodes know, and which nodes they wait
// for; empty if none.
func levelNote(s *perdurev1.ClusterStatus) string {
	newest, earlier := uint64(0), 0
	for _, n := range s.GetNodes() {
		newest = max(newest, n.GetFeatureLevel())
	}
	for _, p := range s.GetPartitions() {
		if level := p.GetFeatureLevel(); level > 0 && level < newest {
			earlier++
		}
	}
	if earlier == 0 {
		return ""
	}
	text := fmt.Sprintf("feature level %d is not reached yet in %s", newest, nounText(earlier, "partition"))
	var waits []string
	for _, n := range s.GetNodes() {
		if n.GetFeatureLevel() < newest {
			waits = append(waits, orDash(n.GetNodeId()))
		}
	}
	if len(waits) > 0 {
		text += ": waiting for this version on " + listText(waits)
	}
	return text
}

// rulesOf names the rules that an audit found broken, as far as it tells, each once.
func rulesOf(a *perdurev1.ReplicaAudit) (rules []string) {
	for _, p := range a.GetProblems() {
		if rule := printable(p.GetRule()); !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return rules
}

// diskProblem says how little space a disk has, and what is refused for it; empty if it has enough.
func diskProblem(d *perdurev1.DiskStatus) string {
	refused := ""
	switch d.GetLevel() {
	case "", "ok":
		return ""
	case "low":
		refused = "what grows the state is refused where it leads"
	case "critical":
		refused = "it proposes nothing"
	default:
		refused = "it stores nothing"
	}
	text := fmt.Sprintf("%s (%s of %s free, the low mark is %s): %s", printable(d.GetLevel()), bytesText(d.GetFree()), bytesText(d.GetTotal()),
		bytesText(d.GetLowMark()), refused)
	if d.GetReserveHeld() && d.GetLevel() != "low" {
		text += fmt.Sprintf("; deleting disk-reserve in its data directory frees %s to purge with", bytesText(d.GetReserve()))
	}
	return text
}

// keptNotes tells of former replicas that nodes keep, each partition once.
func keptNotes(s *perdurev1.ClusterStatus) (notes []string) {
	for _, n := range s.GetNodes() {
		kept := n.GetKept()
		for len(kept) > 0 {
			p, count, bytes := kept[0].GetPartition(), 0, uint64(0)
			for count < len(kept) && kept[count].GetPartition() == p {
				bytes += kept[count].GetBytes()
				count++
			}
			kept = kept[count:]
			notes = append(notes, fmt.Sprintf("node %s keeps %s of partition %d (%s): %s deletes what nobody needs any more",
				orDash(n.GetNodeId()), nounText(count, "former replica"), p, bytesText(bytes), forgetKeptLine(n.GetNodeId(), p)))
		}
	}
	return notes
}

// served counts the partitions that somebody leads, and names the others.
func served(s *perdurev1.ClusterStatus) (led int, leaderless []string) {
	for _, p := range s.GetPartitions() {
		if p.GetLeader() == "" {
			leaderless = append(leaderless, fmt.Sprint(p.GetPartition()))
		} else {
			led++
		}
	}
	return led, leaderless
}

// lastSpare names the partitions that are led and stop when one replica more fails: just a majority works.
func lastSpare(s *perdurev1.ClusterStatus) (names []string) {
	for _, p := range s.GetPartitions() {
		working := 0
		for _, r := range p.GetReplicas() {
			switch r.GetState() {
			case replicaHalted, replicaRebuilding, replicaUnreachable:
			default:
				working++
			}
		}
		if n := len(p.GetReplicas()); p.GetLeader() != "" && n > 1 && working <= n/2+1 && working < n {
			names = append(names, fmt.Sprint(p.GetPartition()))
		}
	}
	return names
}

// summary says whether all is well: that in one line, or one line for each thing that is wrong and one for what
// is served all the same; then one for each thing worth knowing.
func summary(s *perdurev1.ClusterStatus, wrong, notes []string) (lines []string) {
	for _, w := range wrong {
		lines = append(lines, "WRONG: "+w)
	}
	if len(wrong) == 0 {
		lines = append(lines, wellText(s))
	} else {
		lines = append(lines, "served: "+servedText(s))
	}
	for _, n := range notes {
		lines = append(lines, "note: "+n)
	}
	return lines
}

// servedText says what a cluster serves though something is wrong, and what it can still bear.
func servedText(s *perdurev1.ClusterStatus) string {
	led, _ := served(s)
	all := len(s.GetPartitions())
	text := fmt.Sprintf("%d of %s", led, nounText(all, "partition"))
	if led == all && all > 0 {
		text = "every partition"
	}
	switch last := lastSpare(s); {
	case len(last) == 0:
	case len(last) == all && all > 1:
		text += "; none of them can bear another failure"
	case len(last) == 1:
		text += "; partition " + last[0] + " cannot bear another failure"
	default:
		text += "; partitions " + listText(last) + " cannot bear another failure"
	}
	return text
}

// wellText says in one line that all is well.
func wellText(s *perdurev1.ClusterStatus) string {
	all, equal := len(s.GetPartitions()), 0
	for _, p := range s.GetPartitions() {
		if p.GetComparison() == comparedEqual {
			equal++
		}
	}
	text := fmt.Sprintf("all is well: %s reachable, %s led by %s", nounText(len(s.GetNodes()), "node"), nounText(all, "partition"), leaderships(s))
	switch {
	case len(s.GetNodes()) < 2:
	case equal == all:
		text += "; the replicas are equal"
	case equal == 0:
		text += "; the replicas have no index in common yet at which they could be compared"
	default:
		text += fmt.Sprintf("; the replicas of %s are equal, those of %d are not compared yet", nounText(equal, "partition"), all-equal)
	}
	return text
}
