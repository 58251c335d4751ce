package jepsen

import (
	"fmt"
	"time"
)

// WriteFate is the outcome of a write as its client knows it.
type WriteFate string

// The fates.
const (
	Acked   WriteFate = "acknowledged"
	Open    WriteFate = "unknown"  // no answer: it may have been applied
	NotDone WriteFate = "not done" // the client says that it was surely not applied
)

// Write is one write of the load, and its effect as it was found afterwards.
type Write struct {
	// Name is unique; it is the id of a promise or the payload of a signal.
	Name string
	// Box is the execution that the signal went to; empty for a promise.
	Box  string
	Fate WriteFate
	// Called and Answered are times since the run began.
	Called, Answered time.Duration
	// Found is how many times the effect is there afterwards; -1 when no read has answered.
	Found int
}

// CommitVerdict is the checker's result about a load.
type CommitVerdict struct {
	Acked, Open, NotDone int
	// Lost were acknowledged and are not there. Doubled are there more than once. Ghosts are there although
	// the client was sure that they were not applied.
	Lost, Doubled, Ghosts []string
	// Unchecked counts the writes that no read has found or missed yet. They do not pass.
	Unchecked int
}

// OK reports whether every write had the outcome that its client was given.
func (v *CommitVerdict) OK() bool {
	return len(v.Lost)+len(v.Doubled)+len(v.Ghosts)+v.Unchecked == 0
}

// CheckCommits compares the clients' answers with the effects that were found.
func CheckCommits(writes []Write) CommitVerdict {
	var v CommitVerdict
	for _, w := range writes {
		switch w.Fate {
		case Acked:
			v.Acked++
		case Open:
			v.Open++
		default:
			v.NotDone++
		}
		where := fmt.Sprintf("%s (%s, %.3f to %.3f s)", w.Name, w.Fate, w.Called.Seconds(), w.Answered.Seconds())
		if w.Box != "" {
			where = w.Box + ": signal " + where
		}
		switch {
		case w.Found < 0:
			v.Unchecked++
		case w.Found == 0 && w.Fate == Acked:
			v.Lost = append(v.Lost, where)
		case w.Found > 1:
			v.Doubled = append(v.Doubled, fmt.Sprintf("%s: %d times", where, w.Found))
		}
		if w.Found > 0 && w.Fate == NotDone {
			v.Ghosts = append(v.Ghosts, where)
		}
	}
	return v
}
