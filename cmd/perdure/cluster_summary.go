package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// diagnose lists the problems of a cluster, and notes: conditions that are no problem, such as a replica that catches
// up.
func diagnose(s *perdurev1.ClusterStatus) (problems, notes []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	led, leaderless := served(s)
	switch s.GetState() {
	case "ready":
	case "creating":
		bad("the cluster is being created: %d of %s have a leader", led, nounText(len(s.GetPartitions()), "partition"))
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
			todo := "check that it runs and that the network reaches it"
			if strings.Contains(n.GetProblem(), "connection refused") {
				todo = "start it"
			}
			bad("node %s is unreachable%s: %s", orDash(n.GetNodeId()), because(n.GetProblem()), todo)
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
				bad("%s has %s (%s): perdure verify lists them", where, nounText(int(a.GetFound()), "violation"), listText(rulesOf(a)))
			}
			switch r.GetState() {
			case replicaHalted:
				bad("%s has halted%s: perdure replica rebuild --node %s --partition %d rebuilds it", where, because(r.GetProblem()),
					shellWord(r.GetNodeId()), p.GetPartition())
			case replicaUnreachable:
				if !away[r.GetNodeId()] {
					bad("%s is unreachable%s", where, because(r.GetProblem()))
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
			note("node %s lags in %s: at most %d entries behind", orDash(n.GetNodeId()), nounText(k, "partition"), most[n.GetNodeId()])
		}
	}
	if text := backupProblem(s); text != "" {
		bad("%s", text)
	}
	if text := levelNote(s); text != "" {
		note("%s", text)
	}
	notes = append(append(notes, retentionNotes(s)...), backupNotes(s)...)
	return problems, append(notes, quarantineNotes(s)...)
}

// levelNote says what is left to do until the cluster is at the newest feature level that a node knows; empty
// if nothing is.
func levelNote(s *perdurev1.ClusterStatus) string {
	cluster, newest, below := s.GetFeatureLevel(), uint64(0), 0
	for _, n := range s.GetNodes() {
		newest = max(newest, n.GetFeatureLevel())
	}
	for _, p := range s.GetPartitions() {
		if level := p.GetFeatureLevel(); level > 0 && level < cluster {
			below++
		}
	}
	var lacking []string
	for _, n := range s.GetNodes() {
		if n.GetFeatureLevel() < newest {
			lacking = append(lacking, orDash(n.GetNodeId()))
		}
	}
	switch {
	case below > 0:
		return fmt.Sprintf("feature level %d is not reached yet in %s", cluster, nounText(below, "partition"))
	case cluster == 0 || newest <= cluster:
		return ""
	case len(lacking) > 0:
		return fmt.Sprintf("the cluster stays at feature level %d until %s %s a version that knows %d", cluster, listText(lacking),
			map[bool]string{true: "runs", false: "run"}[len(lacking) == 1], newest)
	}
	return fmt.Sprintf("every node knows feature level %d, the cluster is at %d: perdure cluster upgrade raises it", newest, cluster)
}

// rulesOf lists the rules that the reported problems of an audit violate, each once.
func rulesOf(a *perdurev1.ReplicaAudit) (rules []string) {
	for _, p := range a.GetProblems() {
		if rule := printable(p.GetRule()); !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return rules
}

// diskProblem states the free space of a disk and what the node refuses; empty if the space suffices.
func diskProblem(d *perdurev1.DiskStatus) string {
	refused := ""
	switch d.GetLevel() {
	case "", "ok":
		return ""
	case "low":
		refused = "partitions that it leads refuse commands that grow the state"
	case "critical":
		refused = "it proposes nothing"
	default:
		refused = "it stores nothing"
	}
	text := fmt.Sprintf("%s (%s of %s free, the low mark is %s): %s", printable(d.GetLevel()), bytesText(d.GetFree()), bytesText(d.GetTotal()),
		bytesText(d.GetLowMark()), refused)
	if d.GetReserveHeld() && d.GetLevel() != "low" {
		text += fmt.Sprintf("; deleting disk-reserve in its data directory frees %s", bytesText(d.GetReserve()))
	}
	return text
}

// quarantineNotes lists the quarantined replicas of each node, one note for each partition.
func quarantineNotes(s *perdurev1.ClusterStatus) (notes []string) {
	for _, n := range s.GetNodes() {
		held := n.GetQuarantined()
		for len(held) > 0 {
			p, count, bytes := held[0].GetPartition(), 0, uint64(0)
			for count < len(held) && held[count].GetPartition() == p {
				bytes += held[count].GetBytes()
				count++
			}
			held = held[count:]
			notes = append(notes, fmt.Sprintf("node %s keeps %s of partition %d (%s): %s deletes the files",
				orDash(n.GetNodeId()), nounText(count, "quarantined replica"), p, bytesText(bytes), forgetQuarantinedLine(n.GetNodeId(), p)))
		}
	}
	return notes
}

// served counts the partitions that have a leader, and names the others.
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

// lastSpare names the partitions that have a leader and exactly a majority of working replicas.
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

// summary is one line for a healthy cluster, or one line for each problem and one for what is served; then the retention, the backups, the quotas and the notes.
func summary(s *perdurev1.ClusterStatus, problems, notes []string) (lines []string) {
	for _, p := range problems {
		lines = append(lines, "problem: "+p)
	}
	if len(problems) == 0 {
		lines = append(lines, "healthy: "+healthyText(s))
	} else {
		lines = append(lines, "served: "+servedText(s))
	}
	if text := retentionText(s); text != "" {
		lines = append(lines, "retention: "+text)
	}
	if text := backupsText(s); text != "" {
		lines = append(lines, "backups: "+text)
	}
	for _, u := range s.GetQuotas() {
		lines = append(lines, "quota: "+quotaText(u))
	}
	for _, n := range notes {
		lines = append(lines, "note: "+n)
	}
	return lines
}

// servedText counts the partitions that a cluster with problems serves, and names those that one more failure stops.
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
		text += "; each of them stops if another replica fails"
	case len(last) == 1:
		text += "; partition " + last[0] + " stops if another replica fails"
	default:
		text += "; partitions " + listText(last) + " stop if another replica fails"
	}
	return text
}

// healthyText counts nodes, leaderships and compared replicas.
func healthyText(s *perdurev1.ClusterStatus) string {
	all, equal := len(s.GetPartitions()), 0
	for _, p := range s.GetPartitions() {
		if p.GetComparison() == comparedEqual {
			equal++
		}
	}
	text := fmt.Sprintf("%s reachable, %s led by %s", nounText(len(s.GetNodes()), "node"), nounText(all, "partition"), leaderships(s))
	switch {
	case len(s.GetNodes()) < 2:
	case equal == all:
		text += "; replicas equal"
	case equal == 0:
		text += "; replicas not compared yet"
	default:
		text += fmt.Sprintf("; replicas of %s equal, of %d not compared yet", nounText(equal, "partition"), all-equal)
	}
	return text
}
