package machine

import (
	"errors"

	"perdure/journal"
	"perdure/recovery"
)

// Header is what the machine keeps of an execution besides its journal, promise and task: identity,
// placement, and the answer to the last commit.
type Header struct {
	ID string
	// Incarnation is the Raft index at which this life of the id began.
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

	// Problem is what the last release said; Releases counts releases since the last commit.
	Problem  string
	Releases uint64
}

const headerVersion = 1

func (h *Header) encode() []byte {
	e := encoder{b: make([]byte, 0, 128+len(h.ID)+len(h.Function))}
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
	return e.b
}

func decodeHeader(b []byte) (Header, error) {
	d := decoder{b: b}
	if v := d.u64(); d.err == nil && v != headerVersion {
		return Header{}, errors.New("unknown version of an execution header")
	}
	h := Header{
		ID: d.str(), Incarnation: d.u64(), Function: d.str(), Digest: d.str(),
		CreatedMS: d.i64(), ClosedMS: d.i64(), DeadlineMS: d.i64(),
		Status: journal.Status(d.u64()), Events: d.u64(),
	}
	for n := d.u64(); n > 0 && d.err == nil; n-- {
		h.Tags = append(h.Tags, recovery.Tag{Key: d.str(), Value: d.str()})
	}
	h.Parent, h.ParentIncarnation, h.ParentPromise = d.str(), d.u64(), d.str()
	h.GraceAt = d.i64()
	h.StartRequest, h.LastCommit = d.bytes(), d.bytes()
	h.LastState = recovery.TaskState(d.u64())
	h.Problem, h.Releases = d.str(), d.u64()
	return h, d.end()
}
