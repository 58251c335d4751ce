package state

import (
	"errors"
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/recovery"
	"perdure/reduction"
)

// NodeRow is the stored form of one node of a graph run. A node without a row is pending.
type NodeRow struct {
	Status reduction.StatusKind
	// Signal is the name that the node waits for or has waited for.
	Signal string
	// Child is the number of its promise in the run's journal, plus 1; 0 before its start. Generation numbers
	// the incarnation of the run that started it, Attempt the present or last attempt, from 1.
	Child, Generation, Attempt uint32
	Started, Ended             int64
	// RetryAt is the time of the next attempt; 0 unless the node pauses between two.
	RetryAt int64
	// Wave is the number of the wave that recorded the result, in a graph that runs in waves. The result
	// counts once the header has reached that number.
	Wave uint64
	// Kept reports that the result is that of an earlier incarnation of the run, From, whose row has the output.
	// Propagated reports that the node failed because a node before it did.
	Kept, Propagated bool
	From             uint64
	// Failure is an encoded outcome: why the node or its last attempt failed, or why it was skipped (type
	// FailureSkipped if the attempt asked for it).
	Failure []byte
	Output  []byte
}

const rowVersion = 1

const (
	flagKept       = 1
	flagPropagated = 2
)

func (r *NodeRow) Encode() []byte {
	e := encoder{b: make([]byte, 0, 40+len(r.Failure)+len(r.Output))}
	e.u64(rowVersion)
	e.u64(uint64(r.Status))
	e.str(r.Signal)
	e.u64(uint64(r.Child))
	e.u64(uint64(r.Generation))
	e.u64(uint64(r.Attempt))
	e.i64(r.Started)
	e.i64(r.Ended)
	e.i64(r.RetryAt)
	e.u64(r.Wave)
	flags := uint64(0)
	if r.Kept {
		flags |= flagKept
	}
	if r.Propagated {
		flags |= flagPropagated
	}
	e.u64(flags)
	e.u64(r.From)
	e.bytes(r.Failure)
	e.bytes(r.Output)
	return e.b
}

// DecodeRow is the inverse of encode. The row shares its bytes with b.
func DecodeRow(b []byte) (NodeRow, error) {
	d := decoder{b: b}
	if v := d.u64(); d.err == nil && v != rowVersion {
		return NodeRow{}, errors.New("unknown version of a node")
	}
	var r NodeRow
	status := d.u64()
	r.Status = reduction.StatusKind(status)
	r.Signal = d.str()
	r.Child, r.Generation, r.Attempt = d.u32(), d.u32(), d.u32()
	r.Started, r.Ended, r.RetryAt = d.i64(), d.i64(), d.i64()
	r.Wave = d.u64()
	flags := d.u64()
	r.Kept, r.Propagated = flags&flagKept != 0, flags&flagPropagated != 0
	r.From = d.u64()
	r.Failure, r.Output = d.bytes(), d.bytes()
	if d.err == nil && (status > 255 || !r.Status.Valid() || flags&^(flagKept|flagPropagated) != 0) {
		d.fail("a node of an unknown status")
	}
	return r, d.end()
}

// Observed reports whether a result counts in a run that has reached the given wave.
func (r *NodeRow) Observed(wave uint64) bool { return r.Wave <= wave }

// Promise is the id of the node's promise. It is "" before the node's start and for a kept node, whose
// promise belonged to an earlier incarnation of the run.
func (r *NodeRow) Promise(run string) string {
	if r.Child == 0 || r.Kept {
		return ""
	}
	return string(id.PromiseID(run).Child(r.Child - 1))
}

// AttemptsPerGeneration is the range of attempt numbers of one generation. Attempts are numbered children of
// the node's promise, and no two incarnations of the run share a number.
const AttemptsPerGeneration = 1024

// MaxGeneration is the last generation whose attempts have numbers.
const MaxGeneration = 1<<32/AttemptsPerGeneration - 1

// AttemptID is the execution of the node's present or last attempt.
func (r *NodeRow) AttemptID(run string) string {
	return string(id.PromiseID(run).Child(r.Child - 1).Child(r.Generation*AttemptsPerGeneration + r.Attempt - 1))
}

// FunctionGraph is the function under which graph runs are listed; FunctionHTTP is the one that makes the
// requests of HTTP nodes.
const (
	FunctionGraph = "$graph"
	FunctionHTTP  = "$http"
)

// graphTag marks the promise of a graph run, which has no target.
const graphTag = "$graph"

func OfGraph(p recovery.Promise) bool {
	if p.Target != "" || len(p.Tags) == 0 || OfClient(p) {
		return false
	}
	_, ok := p.Tag(graphTag)
	return ok
}

func WithGraphTag(tags []recovery.Tag) []recovery.Tag {
	out := make([]recovery.Tag, 0, len(tags)+1)
	for _, t := range tags {
		if t.Key != graphTag {
			out = append(out, t)
		}
	}
	return append(out, recovery.Tag{Key: graphTag})
}

// NodeOfKey reads the number of a node from the end of its key.
func NodeOfKey(key, prefix []byte, nodes int) (int, error) {
	if len(key) != len(prefix)+4 {
		return 0, fmt.Errorf("%d bytes after the incarnation, not 4", len(key)-len(prefix))
	}
	rest := key[len(prefix):]
	n := int(rest[0])<<24 | int(rest[1])<<16 | int(rest[2])<<8 | int(rest[3])
	if n >= nodes {
		return 0, fmt.Errorf("node number %d is not below %d", n, nodes)
	}
	return n, nil
}

// ReductionState derives the reduction's state from the rows of a run that has reached the given wave. A node
// whose result is not observed yet counts as running, or as waiting for the signal that it has received.
func ReductionState(g *perdurev1.Graph, rows []NodeRow, wave uint64) reduction.State {
	s := reduction.State{Statuses: make(map[reduction.NodeID]reduction.Status, len(rows)),
		Outputs: make(map[reduction.NodeID][]byte, len(rows))}
	for n := range rows {
		row, node := &rows[n], reduction.NodeID(g.Nodes[n].Id)
		switch {
		case row.Status == reduction.StatusWaiting, !row.Observed(wave) && row.Signal != "":
			s.Statuses[node] = reduction.Waiting(row.Signal)
		case !row.Observed(wave):
			s.Statuses[node] = reduction.Status{Kind: reduction.StatusRunning}
		default:
			s.Statuses[node] = reduction.Status{Kind: row.Status}
			if row.Status == reduction.StatusCompleted {
				s.Outputs[node] = row.Output
			}
		}
	}
	return s
}
