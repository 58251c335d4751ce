// Package conformance implements the line protocol for checks of journals by other programs: it reads cases
// as JSON lines and writes verdicts. Each case gets one verdict, from the guards that the server applies; an
// unreadable line gets one as well. The package keeps nothing between lines.
//
// A case names an execution, the entries of its journal and one more append; the verdict says whether that
// append is accepted, and the status and the next child number afterwards. The identifier [7, 2, 0] of the
// protocol is 7:2.0 here.
package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"perdure/journal"
)

// StatusInvalid is the status of a case whose journal is itself refused, or whose line is not a case.
const StatusInvalid = "Invalid"

// verdict is one line of output.
type verdict struct {
	ID     json.RawMessage `json:"id"`
	Accept bool            `json:"accept"`
	Status string          `json:"status"`
	Next   *uint32         `json:"nextChildSeq,omitempty"`
}

// CheckLines checks every case in r and writes the verdicts to w, in order, until r ends. Lines may be of any
// length; empty ones are skipped. The error is that of reading or writing, never a verdict.
func CheckLines(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, 1<<16)
	out := bufio.NewWriter(w)
	for {
		line, readErr := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			text, err := json.Marshal(verdictOf(line))
			if err != nil {
				return err
			}
			if _, err := out.Write(append(text, '\n')); err != nil {
				return err
			}
		}
		if readErr == nil {
			continue
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		return readErr
	}
}

// verdictOf returns the verdict of one line.
func verdictOf(line []byte) verdict {
	c, err := parseObject(line)
	if err != nil {
		return verdict{ID: json.RawMessage("null"), Status: StatusInvalid}
	}
	v := verdict{ID: c.raw["id"], Status: StatusInvalid}
	if v.ID == nil {
		v.ID = json.RawMessage("null")
	}
	state, err := load(c)
	if err != nil {
		return v
	}
	v.Accept = attempt(state, c.raw["append"]) == nil
	next := state.NextChild()
	v.Status, v.Next = state.Status().String(), &next
	return v
}

// load builds the journal of a case.
func load(c *fields) (*journal.State, error) {
	eid := c.id("eid")
	entries := c.list("journal")
	if c.problem != nil {
		return nil, c.problem
	}
	state := journal.New(eid)
	for _, raw := range entries {
		entry, err := parseObject(raw)
		if err != nil {
			return nil, err
		}
		ev, err := parseEvent(entry.raw["event"])
		if err != nil {
			return nil, err
		}
		if err := state.Append(state.NextSeq(), ev); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// attempt tries the last append of a case. It refuses an unreadable event (K15).
func attempt(state *journal.State, raw json.RawMessage) error {
	c, err := parseObject(raw)
	if err != nil {
		return err
	}
	ev, err := parseEvent(c.raw["event"])
	if err != nil {
		return err
	}
	seq := c.unsigned("seq", 64)
	if c.problem != nil {
		return c.problem
	}
	return state.Append(seq, ev)
}
