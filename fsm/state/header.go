package state

import (
	"errors"
	"math"

	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// Header is what the machine stores of an execution in addition to its journal, promise and task: identity,
// placement, and the answer to the last commit.
type Header struct {
	ID string
	// Incarnation is the Raft index at which this use of the id began.
	Incarnation uint64
	Function    string
	Digest      string
	CreatedMS   int64
	// ClosedMS is 0 while the execution is open.
	ClosedMS int64
	// DeadlineMS is 0 when there is none.
	DeadlineMS int64
	Status     journal.Status
	// Events is the journal's length.
	Events uint64
	Tags   []recovery.Tag

	// Parent is the execution that called this one, ParentPromise its promise that this one settles.
	// Both are empty for a start from outside.
	Parent            string
	ParentIncarnation uint64
	ParentPromise     string

	// GraceAt is when a cancelling execution is ended without its worker; 0 when not cancelling.
	GraceAt int64

	// StartRequest is the request id of the start, so that its repetition gets the same answer.
	StartRequest []byte
	// LastCommit is the request id of the last commit, LastState the task state it left.
	LastCommit []byte
	LastState  recovery.TaskState

	// Kind says whose program the execution runs.
	Kind Kind
	// Generation counts the earlier incarnations, Former is the last of them.
	Generation uint32
	Former     uint64
	// Wave and GraphAt are a graph run's.
	//
	// Wave counts the waves whose results were observed, of a graph that runs in waves.
	Wave uint64
	// GraphAt is when the run is to start what it could not start at once; 0 when there is nothing.
	GraphAt int64

	HeaderMore

	// Open has the journal of an open execution that has no rows of its own for it: its entries, as AppendInline writes them.
	Open []byte

	// Problem is what the last release said; Releases counts releases since the last commit.
	Problem  string
	Releases uint64

	// The fields below are a function's with a former incarnation. Kept is how many child numbers it keeps of that:
	// their operations may belong to incarnations from Attached on. Attached is 0 if there is none.
	Kept     uint32
	Attached uint64
	// SweepAt is the deadline to delete the next part of the former incarnation, Sweep where that part begins; 0 and
	// empty when nothing is left of it. The task is not announced before.
	SweepAt int64
	Sweep   []byte
	// StartInput is the SHA-256 of the input of the id's start, after a continue-as-new.
	StartInput []byte
}

// Belongs reports whether an operation of an incarnation is one of this execution: its own, or kept.
func (h *Header) Belongs(incarnation uint64) bool {
	return incarnation == h.Incarnation || h.Attached != 0 && h.Attached <= incarnation && incarnation < h.Incarnation
}

const headerVersion = 1

// Kind says which kind of program an execution runs. The numbers are stored and never change.
type Kind uint8

// The kinds of executions.
const (
	// KindFunction: a worker's, by replay.
	KindFunction Kind = 0
	// KindGraph: a graph, which the machine itself advances.
	KindGraph Kind = 1
)

func (h *Header) Encode() []byte {
	return h.Append(make([]byte, 0, 128+len(h.ID)+len(h.Function)))
}

// Append appends what Encode returns.
func (h *Header) Append(b []byte) []byte {
	e := encoder{b: b}
	e.u64(headerVersion)
	e.str(h.ID)
	e.u64(h.Incarnation)
	e.str(h.Function)
	e.str(h.Digest)
	e.i64(h.CreatedMS)
	e.i64(h.ClosedMS)
	e.i64(h.DeadlineMS)
	e.u64(uint64(h.Status))
	e.u64(h.Events)
	e.u64(uint64(len(h.Tags)))
	for _, t := range h.Tags {
		e.str(t.Key)
		e.str(t.Value)
	}
	e.str(h.Parent)
	e.u64(h.ParentIncarnation)
	e.str(h.ParentPromise)
	e.i64(h.GraceAt)
	e.bytes(h.StartRequest)
	e.bytes(h.LastCommit)
	e.u64(uint64(h.LastState))
	e.str(h.Problem)
	e.u64(h.Releases)
	if h.Kind != KindFunction || h.Generation > 0 || h.HeaderMore != (HeaderMore{}) || len(h.Open) > 0 {
		e.u64(uint64(h.Kind))
		e.u64(uint64(h.Generation))
		e.u64(h.Former)
		e.u64(h.Wave)
		e.i64(h.GraphAt)
	}
	if h.Kind == KindFunction && h.Generation > 0 {
		e.u64(uint64(h.Kept))
		e.u64(h.Attached)
		e.i64(h.SweepAt)
		e.bytes(h.Sweep)
		e.bytes(h.StartInput)
	}
	h.HeaderMore.encode(&e)
	if len(h.Open) > 0 {
		e.u64(tagOpen)
		e.bytes(h.Open)
	}
	return e.b
}

func DecodeHeader(b []byte) (Header, error) {
	d := decoder{b: b}
	if v := d.u64(); d.err == nil && v != headerVersion {
		return Header{}, errors.New("execution header has an unknown version")
	}
	h := Header{
		ID: d.str(), Incarnation: d.u64(), Function: d.str(), Digest: d.str(),
		CreatedMS: d.i64(), ClosedMS: d.i64(), DeadlineMS: d.i64(),
		Status: journal.Status(d.u8()), Events: d.u64(),
	}
	for n := d.u64(); n > 0 && d.err == nil; n-- {
		h.Tags = append(h.Tags, recovery.Tag{Key: d.str(), Value: d.str()})
	}
	h.Parent, h.ParentIncarnation, h.ParentPromise = d.str(), d.u64(), d.str()
	h.GraceAt = d.i64()
	h.StartRequest, h.LastCommit = d.bytes(), d.bytes()
	h.LastState = recovery.TaskState(d.u8())
	h.Problem, h.Releases = d.str(), d.u64()
	if len(d.b) > 0 {
		kind, generation := d.u64(), d.u64()
		switch {
		case d.err != nil:
		case kind == uint64(KindGraph) && generation <= MaxGeneration:
		case kind == uint64(KindFunction) && generation <= math.MaxUint32:
		default:
			d.fail("an execution of an unknown kind")
		}
		h.Kind, h.Generation, h.Former, h.Wave, h.GraphAt = Kind(kind), uint32(generation), d.u64(), d.u64(), d.i64()
		if h.Kind == KindFunction && h.Generation == 0 && len(d.b) == 0 {
			d.fail("the kind of an execution that needs none")
		}
	}
	if h.Kind == KindFunction && h.Generation > 0 {
		kept := d.u64()
		if kept > math.MaxUint32 {
			d.fail("more child numbers than there are")
		}
		h.Kept, h.Attached, h.SweepAt = uint32(kept), d.u64(), d.i64()
		h.Sweep, h.StartInput = d.bytes(), d.bytes()
	}
	h.HeaderMore.decode(&d, &h.Open)
	h.checkInline(&d)
	h.checkOpen(&d)
	return h, d.end()
}

func ParentOf(objectID string) (string, bool) {
	p, ok := id.PromiseID(objectID).Parent()
	return string(p), ok
}

// IsAttempt reports whether an execution is an attempt of a graph's node: its own parent id is the promise
// that it settles.
func (h *Header) IsAttempt() bool {
	if h.ParentPromise == "" {
		return false
	}
	parent, ok := ParentOf(h.ID)
	return ok && parent == h.ParentPromise && h.ID != h.ParentPromise
}
