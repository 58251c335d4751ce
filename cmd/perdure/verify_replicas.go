package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/fsm/audit"
)

const (
	// compareEvery is the pause between two reads of replicas that cannot be compared yet.
	compareEvery = 100 * time.Millisecond
	// awayAfter is how long a replica must be unreachable, in two reads at least, before the comparison stops
	// waiting for it.
	awayAfter = time.Second
)

// Rules about replicas, not about journals.
const (
	ruleReplicasDiffer = "replicas_differ"
	ruleReplicaHalted  = "replica_halted"
)

// notComparedError says that not all replicas of some partitions could be compared in time.
type notComparedError struct {
	partitions []uint32
	// away are the nodes that cannot be reached and were not waited for.
	away   []string
	waited time.Duration
}

func (e *notComparedError) Error() string {
	switch len(e.away) {
	case 0:
	case 1:
		return fmt.Sprintf("not every replica could be compared: node %s cannot be reached", e.away[0])
	default:
		return fmt.Sprintf("not every replica could be compared: nodes %s cannot be reached", listText(e.away))
	}
	var numbers []string
	for _, p := range e.partitions {
		numbers = append(numbers, fmt.Sprint(p))
	}
	switch len(numbers) {
	case 0:
		return fmt.Sprintf("the cluster showed no partition within %s", e.waited)
	case 1:
		return fmt.Sprintf("not every replica of partition %s could be compared within %s", numbers[0], e.waited)
	}
	return fmt.Sprintf("not every replica of partitions %s could be compared within %s", listText(numbers), e.waited)
}

// replicaReport is how the replicas of a cluster compare.
type replicaReport struct {
	// known is false when the server has no cluster to ask about.
	known    bool
	status   *perdurev1.ClusterStatus
	verdicts []replicaVerdict
	// away are the nodes that could not be reached and were not waited for.
	away []string
}

// Results of a comparison, besides "equal" and "different".
const (
	incomplete = "incomplete"
	// single is of a partition with one replica: there is nothing to compare.
	single = "single"
)

// replicaVerdict is the result of comparing the replicas of one partition.
type replicaVerdict struct {
	partition uint32
	// result is "equal", "different", "incomplete" or "single".
	result string
	// index is where they were compared; 0 if nothing was.
	index uint64
	// compared are the nodes that took part, missing those that did not, each with its state.
	compared, missing []string
}

// text is the verdict in words.
func (v replicaVerdict) text() string {
	var parts []string
	switch {
	case v.result == single:
		return "one replica, on " + listText(v.compared)
	case v.result == comparedDifferent:
		parts = append(parts, fmt.Sprintf("DIFFERENT at index %d", v.index))
		if len(v.compared) > 0 {
			parts[0] += " on " + listText(v.compared)
		}
	case len(v.compared) > 0:
		parts = append(parts, fmt.Sprintf("equal at index %d on %s", v.index, listText(v.compared)))
	}
	if len(v.missing) > 0 {
		parts = append(parts, "not compared: "+strings.Join(v.missing, ", "))
	}
	return strings.Join(parts, "; ")
}

func (v replicaVerdict) object() object {
	return object{{"partition", uint64(v.partition)}, {"comparison", v.result}, {"index", v.index},
		{"compared", texts(v.compared)}, {"missing", texts(v.missing)}}
}

// comparer gathers the replicas' checksums. A checksum at an index never changes, so those of several reads
// of a busy cluster can be compared.
type comparer struct {
	// sums are the checksums seen, by partition, index and node.
	sums map[uint32]map[uint64]map[string]uint64
	last *perdurev1.ClusterStatus
	// unreached are the replicas that could not be reached at the last look, and since when.
	unreached map[location]unreachedSince
	now       func() time.Time
}

// location is a replica: its partition and node.
type location struct {
	partition uint32
	node      string
}

type unreachedSince struct {
	first time.Time
	reads int
}

func newComparer(now func() time.Time) *comparer {
	return &comparer{sums: map[uint32]map[uint64]map[string]uint64{}, unreached: map[location]unreachedSince{}, now: now}
}

// compareReplicas reads until all replicas of every partition were compared at one index, except those that
// stay away, or within is over.
func (a *app) compareReplicas(ctx context.Context, c *client.Client, within time.Duration) (replicaReport, error) {
	looking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pause := time.NewTicker(compareEvery)
	defer pause.Stop()
	seen := newComparer(time.Now)
	progress := a.newProgress()
	for {
		s, err := a.clusterStatus(looking, c)
		switch {
		case status.Code(err) == codes.Unimplemented:
			return replicaReport{}, nil
		case err != nil && (seen.last == nil || ctx.Err() != nil || !client.Unavailable(err)):
			return replicaReport{}, &withinError{err, min(a.timeout, within)}
		case err == nil:
			seen.note(s)
		}
		verdicts, final := seen.verdicts()
		if !final {
			progress.at(func() string { return "not all replicas could be compared yet" })
			select {
			case <-pause.C:
				continue
			case <-looking.Done():
			}
		}
		report := replicaReport{known: true, status: seen.last, verdicts: verdicts}
		if final {
			report.away = seen.away() // else there is more that could not be compared
		}
		return report, ctx.Err()
	}
}

func (a *app) clusterStatus(ctx context.Context, c *client.Client) (*perdurev1.ClusterStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return c.ClusterStatus(ctx)
}

func (c *comparer) note(s *perdurev1.ClusterStatus) {
	c.last = s
	for _, p := range s.GetPartitions() {
		at := c.sums[p.GetPartition()]
		if at == nil {
			at = map[uint64]map[string]uint64{}
			c.sums[p.GetPartition()] = at
		}
		for _, r := range p.GetReplicas() {
			c.noteReach(location{p.GetPartition(), r.GetNodeId()}, r)
			if r.GetChecksumIndex() == 0 && !empty(r) {
				continue
			}
			if at[r.GetChecksumIndex()] == nil {
				at[r.GetChecksumIndex()] = map[string]uint64{}
			}
			at[r.GetChecksumIndex()][r.GetNodeId()] = r.GetChecksum()
		}
	}
}

// noteReach counts the reads in a row at which a replica could not be reached.
func (c *comparer) noteReach(at location, r *perdurev1.ClusterReplica) {
	if r.GetState() != replicaUnreachable {
		delete(c.unreached, at)
		return
	}
	since, before := c.unreached[at]
	if !before {
		since.first = c.now()
	}
	since.reads++
	c.unreached[at] = since
}

// gone reports whether a replica has been unreachable too long to wait for it.
func (c *comparer) gone(at location) bool {
	since, unreached := c.unreached[at]
	return unreached && since.reads > 1 && c.now().Sub(since.first) >= awayAfter
}

// away are the nodes with replicas that are gone, in the order of the last look.
func (c *comparer) away() (nodes []string) {
	for _, p := range c.last.GetPartitions() {
		for _, r := range p.GetReplicas() {
			name := orDash(r.GetNodeId())
			if c.gone(location{p.GetPartition(), r.GetNodeId()}) && !slices.Contains(nodes, name) {
				nodes = append(nodes, name)
			}
		}
	}
	return nodes
}

// empty reports whether a replica works and has applied nothing yet: then its checksum is that of index 0.
func empty(r *perdurev1.ClusterReplica) bool {
	switch r.GetState() {
	case replicaHalted, replicaRebuilding, replicaUnreachable:
		return false
	}
	return r.GetApplied() == 0
}

// verdicts compares the replicas of each partition by the statuses so far. final says that a further status
// would not change them; a cluster that shows no partitions is still being formed.
func (c *comparer) verdicts() (out []replicaVerdict, final bool) {
	final = len(c.last.GetPartitions()) > 0
	for _, p := range c.last.GetPartitions() {
		v, more := c.verdict(p)
		out, final = append(out, v), final && !more
	}
	return out, final
}

// verdict compares the replicas of one partition. more says that a further status may change the verdict.
func (c *comparer) verdict(p *perdurev1.ClusterPartition) (v replicaVerdict, more bool) {
	v = replicaVerdict{partition: p.GetPartition(), result: incomplete}
	at := c.sums[p.GetPartition()]
	// The highest index with the checksums of the most replicas; an index at which two differ comes first.
	for index, sums := range at {
		if differ(sums) {
			if v.result != comparedDifferent || index < v.index {
				v.result, v.index = comparedDifferent, index // the lowest is the nearest to the cause
			}
			continue
		}
		if n, best := len(sums), len(at[v.index]); v.result != comparedDifferent && n > 1 && (n > best || n == best && index > v.index) {
			v.index = index
		}
	}
	if p.GetComparison() == comparedDifferent && v.result != comparedDifferent {
		// The cluster has compared at indexes that were not read here.
		v.result, v.index = comparedDifferent, p.GetComparedIndex()
	}
	// awaited may still come, absent will not soon, working have come or may; one alone compares with nothing.
	awaited, absent, working := 0, 0, 0
	for _, r := range p.GetReplicas() {
		if _, took := at[v.index][r.GetNodeId()]; took || len(p.GetReplicas()) == 1 {
			v.compared = append(v.compared, printable(r.GetNodeId()))
			working++
			continue
		}
		v.missing = append(v.missing, fmt.Sprintf("%s (%s)", orDash(r.GetNodeId()), orDash(r.GetState())))
		switch {
		case r.GetState() == replicaHalted: // it will not come; that it has halted is reported separately
		case c.gone(location{p.GetPartition(), r.GetNodeId()}):
			absent++
		default:
			awaited++
			working++
		}
	}
	switch {
	case v.result == comparedDifferent:
	case len(p.GetReplicas()) == 1:
		v.result, v.index = single, 0
	case awaited+absent == 0 && len(v.compared) > 1:
		v.result = comparedEqual
	default:
		more = awaited > 0 && working > 1
	}
	return v, more
}

func differ(sums map[string]uint64) bool {
	first, one := uint64(0), false
	for _, sum := range sums {
		if one && sum != first {
			return true
		}
		first, one = sum, true
	}
	return false
}

// findings are the violations of replicas: those that differ, and those that have halted.
func (r replicaReport) findings() []finding {
	var out []finding
	bad := func(rule string, partition uint32, detail string) {
		out = append(out, finding{Violation: audit.Violation{Rule: rule, Detail: detail}, partition: int(partition)})
	}
	for _, v := range r.verdicts {
		if v.result == comparedDifferent {
			bad(ruleReplicasDiffer, v.partition, fmt.Sprintf("the replicas do not hold the same at index %d", v.index))
		}
	}
	for _, p := range r.status.GetPartitions() {
		for _, r := range p.GetReplicas() {
			if r.GetState() == replicaHalted {
				bad(ruleReplicaHalted, p.GetPartition(), fmt.Sprintf("the replica on %s has halted%s", orDash(r.GetNodeId()), because(r.GetProblem())))
			}
		}
	}
	return out
}

// incomplete are the partitions of which not every replica could be compared.
func (r replicaReport) incomplete() (out []uint32) {
	for _, v := range r.verdicts {
		if v.result == incomplete {
			out = append(out, v.partition)
		}
	}
	return out
}

// lines are the report for people.
func (r replicaReport) lines() []string {
	if !r.known {
		return []string{"replicas were not compared: this server has no operators' service"}
	}
	alone := true
	for _, v := range r.verdicts {
		alone = alone && v.result == single
	}
	if alone && len(r.verdicts) > 0 {
		return []string{fmt.Sprintf("each of %s has one replica: nothing to compare", nounText(len(r.verdicts), "partition"))}
	}
	var out []string
	for _, v := range r.verdicts {
		out = append(out, fmt.Sprintf("partition %d: %s", v.partition, v.text()))
	}
	return out
}

// value is the report as JSON: null when nothing is known.
func (r replicaReport) value() any {
	if !r.known {
		return nil
	}
	items := make([]any, len(r.verdicts))
	for i, v := range r.verdicts {
		items[i] = v.object()
	}
	return items
}
