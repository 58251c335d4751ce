package jepsen

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"perdure/durable"
)

// stepNames are the steps of the function that the executions run.
var stepNames = []string{"reserve", "charge", "ship"}

// functionName is that function's name.
const functionName = "jepsen-three-steps"

// stepsInput is what the function is told.
type stepsInput struct {
	// ID is the execution's own.
	ID string `json:"id"`
	// Micros is how long a step takes.
	Micros int64 `json:"us"`
}

// receipt is what a step returns: proof of the one run that counts.
type receipt struct {
	Promise string `json:"promise"`
	Proof   string `json:"proof"`
}

// NoteKind says what a worker notes.
type NoteKind string

// What a worker notes, each before it does anything further.
const (
	NoteTask NoteKind = "task" // a task came
	NoteAct  NoteKind = "act"  // a step is about to act on the world outside
	NoteAck  NoteKind = "ack"  // Run has returned a step's receipt
	NoteBack NoteKind = "back" // the worker gives a task back, of its own will
	NoteLost NoteKind = "lost" // the worker was told that a task is not its own any more
)

// StepNote is a line of a worker's book of steps. Times of all workers are of one machine's clock.
type StepNote struct {
	At time.Time
	// Worker is the worker's name, Life the id of its process.
	Worker string
	Life   int
	Kind   NoteKind
	// Promise is of a step; Proof is of an acknowledgement.
	Execution, Promise, Proof string
}

// stepFunction is the durable function of three steps. Each acts on a world outside that does what it is told
// as often as it is told: the book.
func stepFunction(note func(kind NoteKind, words ...string) error) *durable.Function[stepsInput, string] {
	must := func(kind NoteKind, words ...string) {
		if err := note(kind, words...); err != nil {
			panic(err) // not an answer of the function: another worker may do better
		}
	}
	return durable.NewFunction(functionName, func(ctx durable.Context, in stepsInput) (string, error) {
		var proofs []string
		for _, name := range stepNames {
			r, err := durable.Run(ctx, name, func(ctx context.Context) (receipt, error) {
				promise := durable.StepInfo(ctx).PromiseID
				must(NoteAct, in.ID, promise)
				if err := pause(ctx, time.Duration(in.Micros)*time.Microsecond); err != nil {
					return receipt{}, err
				}
				var proof [8]byte
				rand.Read(proof[:])
				return receipt{promise, hex.EncodeToString(proof[:])}, nil
			})
			if err != nil {
				return "", err
			}
			must(NoteAck, in.ID, r.Promise, r.Proof)
			proofs = append(proofs, r.Proof)
		}
		return ResultOf(in.ID, proofs), nil
	})
}

// noteStep adds a line to a book of steps.
func (b *book) noteStep(worker string) func(NoteKind, ...string) error {
	pid := strconv.Itoa(os.Getpid())
	return func(kind NoteKind, words ...string) error {
		return b.line(append([]string{strconv.FormatInt(time.Now().UnixNano(), 10), worker, pid, string(kind)}, words...)...)
	}
}

// noteEvent notes what happens to the tasks of the three-step function.
func noteEvent(note func(NoteKind, ...string) error) func(durable.Event) {
	kinds := map[durable.EventKind]NoteKind{durable.EventTask: NoteTask, durable.EventProblem: NoteBack, durable.EventLost: NoteLost}
	return func(e durable.Event) {
		if kind, of := kinds[e.Kind]; of && e.Function == functionName {
			if err := note(kind, e.ID); err != nil {
				panic(err)
			}
		}
	}
}

// Steps are the books of steps of all workers, for the executions whose ids begin with a prefix, in the order of
// time.
func (c *Cluster) Steps(prefix string) ([]StepNote, error) {
	var out []StepNote
	for _, w := range c.workers {
		f, err := os.Open(w.Steps)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was given nothing to do
		} else if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			n, err := parseNote(lines.Text())
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", w.Steps, err), f.Close())
			}
			if strings.HasPrefix(n.Execution, prefix) {
				out = append(out, n)
			}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b StepNote) int { return a.At.Compare(b.At) })
	return out, nil
}

func parseNote(line string) (n StepNote, err error) {
	words := strings.Split(line, "\t")
	if len(words) < 5 || len(words) > 7 {
		return n, fmt.Errorf("a line of %d words: %q", len(words), line)
	}
	words = append(words, "", "")
	at, err := strconv.ParseInt(words[0], 10, 64)
	pid, err2 := strconv.Atoi(words[2])
	return StepNote{time.Unix(0, at), words[1], pid, NoteKind(words[3]), words[4], words[5], words[6]}, cmp.Or(err, err2)
}

// StepRecords are the steps that notes tell of, in the order in which they ran first. The notes stand in the
// order of time.
func StepRecords(notes []StepNote) []StepRecord {
	steps := map[string]*StepRecord{}
	var order []string
	for _, n := range notes {
		if n.Kind != NoteAct && n.Kind != NoteAck {
			continue
		}
		s := steps[n.Promise]
		if s == nil {
			s = &StepRecord{Execution: n.Execution, Promise: n.Promise}
			steps[n.Promise] = s
			order = append(order, n.Promise)
		}
		switch {
		case n.Kind == NoteAct:
			if s.Runs++; s.Receipt != "" {
				s.RunAfterAck++
			}
		case s.Receipt == "":
			s.Receipt = n.Proof
		case s.Receipt != n.Proof:
			s.Changed = append(s.Changed, n.Proof)
		}
	}
	out := make([]StepRecord, 0, len(order))
	for _, p := range order {
		out = append(out, *steps[p])
	}
	return out
}
