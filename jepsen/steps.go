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

// functionName is that function's name; waitingName is the name of the one that waits between its steps.
const functionName, waitingName = "jepsen-three-steps", "jepsen-waiting-steps"

// stepsInput is the input of the functions.
type stepsInput struct {
	// ID is the execution's own.
	ID string `json:"id"`
	// Micros is how long a step takes.
	Micros int64 `json:"us"`
	// Box is an execution that the waiting function sends its signals to, Sleep how long it sleeps, in milliseconds.
	Box   string `json:"box,omitempty"`
	Sleep int64  `json:"sleep,omitempty"`
}

// sentSignal and goSignal are the names of the signals that the waiting function sends and waits for;
// signalsEach is how many it sends.
const (
	sentSignal, goSignal = "done", "go"
	signalsEach          = 2
)

// missingOf is an id that no execution has: the waiting function sends a signal to it.
func missingOf(id string) string { return id + "-missing" }

// answersWanted are the answers that the waiting function must get to its signals: to the box, to a missing
// target, to the box.
var answersWanted = []string{"delivered", durable.TypeTargetNotFound, "delivered"}

// answerOf is one of them. The error is one that is no answer.
func answerOf(ctx durable.Context, sent *durable.Future[struct{}]) (string, error) {
	_, err := sent.Get(ctx)
	var failed *durable.Error
	switch {
	case err == nil:
		return "delivered", nil
	case errors.As(err, &failed):
		return failed.Type, nil
	}
	return "", err
}

// sentPayload is what the n-th signal of an execution holds.
func sentPayload(id string, n int) string { return fmt.Sprintf("%s/%d", id, n) }

// receipt is a step's result: proof of the one run that counts.
type receipt struct {
	Promise string `json:"promise"`
	Proof   string `json:"proof"`
}

// NoteKind is the kind of a worker's note.
type NoteKind string

// Kinds of a worker's notes. A worker writes each before it does anything further.
const (
	NoteTask NoteKind = "task" // a task came
	NoteAct  NoteKind = "act"  // a step is about to act on the world outside
	NoteRan  NoteKind = "ran"  // Run has returned a step's receipt, which may not be recorded yet
	NoteAck  NoteKind = "ack"  // a step's receipt is recorded: what comes after the step begins, or it was replayed
	NoteRest NoteKind = "rest" // the function is about to sleep, for so many milliseconds
	NoteWake NoteKind = "wake" // Sleep has returned
	NoteBack NoteKind = "back" // the worker gives a task back, of its own will
	NoteLost NoteKind = "lost" // the cluster reported that a task is not the worker's any more
)

// StepNote is a line of a worker's book of steps. Times of all workers are of one machine's clock.
type StepNote struct {
	At time.Time
	// Worker is the worker's name, PID its process id.
	Worker string
	PID    int
	Kind   NoteKind
	// Promise is of a step, or how many milliseconds a sleep takes; Proof is of an acknowledgement.
	Execution, Promise, Proof string
}

// notes is how the functions write their book.
type notes func(kind NoteKind, words ...string) error

// must writes a note, or releases the task: the failure is not an answer of the function, because another
// worker may succeed.
func (note notes) must(kind NoteKind, words ...string) {
	if err := note(kind, words...); err != nil {
		panic(err)
	}
}

// newProof is a proof of one run of a step.
func newProof() string {
	var proof [8]byte
	rand.Read(proof[:])
	return hex.EncodeToString(proof[:])
}

// steps runs the steps of one execution. Its outside world is the book, which repeats an act as often as a step does.
// Run may return before the cluster has recorded the step, but nothing that follows begins before. So a step's receipt is
// acknowledged when the next step acts, when the next wait is over, when Run returns it without an act (a replay), or
// when the client has the execution's result.
//
// The time of an act is read before it, the time of an acknowledgement after it. So an act that is noted later than an
// acknowledgement began after the cluster had recorded the step.
type steps struct {
	note notes
	id   string
	ran  []receipt // not acknowledged yet
}

// recorded acknowledges the steps that have run.
func (s *steps) recorded() {
	for _, r := range s.ran {
		s.note.must(NoteAck, s.id, r.Promise, r.Proof)
	}
	s.ran = nil
}

// run runs one step, for so long.
func (s *steps) run(ctx durable.Context, name string, long time.Duration) (proof string, err error) {
	acted := false
	r, err := durable.Run(ctx, name, func(ctx context.Context) (receipt, error) {
		acted = true
		s.recorded()
		promise := durable.StepInfo(ctx).PromiseID
		s.note.must(NoteAct, s.id, promise)
		if err := pause(ctx, long); err != nil {
			return receipt{}, err
		}
		return receipt{promise, newProof()}, nil
	})
	if err != nil {
		return "", err
	}
	s.note.must(NoteRan, s.id, r.Promise, r.Proof)
	s.ran = append(s.ran, r)
	if !acted {
		s.recorded()
	}
	return r.Proof, nil
}

// stepFunction is the durable function of three steps.
func stepFunction(note notes) *durable.Function[stepsInput, string] {
	return durable.NewFunction(functionName, func(ctx durable.Context, in stepsInput) (string, error) {
		var proofs []string
		all := &steps{note: note, id: in.ID}
		for _, name := range stepNames {
			proof, err := all.run(ctx, name, time.Duration(in.Micros)*time.Microsecond)
			if err != nil {
				return "", err
			}
			proofs = append(proofs, proof)
		}
		return ResultOf(in.ID, proofs), nil
	})
}

// waitingFunction is the durable function that sends signals and sleeps between its first two steps, and
// sends another and waits for one between the last two. At the end it asks for the delivery of those it sent.
func waitingFunction(note notes) *durable.Function[stepsInput, string] {
	return durable.NewFunction(waitingName, func(ctx durable.Context, in stepsInput) (string, error) {
		var proofs []string
		all := &steps{note: note, id: in.ID}
		var sent []*durable.Future[struct{}]
		send := func(to string, n int) error {
			f, err := durable.GoSignal(ctx, to, sentSignal, sentPayload(in.ID, n))
			sent = append(sent, f)
			return err
		}
		for i, name := range stepNames {
			proof, err := all.run(ctx, name, time.Duration(in.Micros)*time.Microsecond)
			if err != nil {
				return "", err
			}
			proofs = append(proofs, proof)
			if i == len(stepNames)-1 {
				break
			}
			if err := send(in.Box, i); err != nil {
				return "", err
			}
			if i == 0 {
				if err := send(missingOf(in.ID), signalsEach); err != nil {
					return "", err
				}
				note.must(NoteRest, in.ID, strconv.FormatInt(in.Sleep, 10))
				if err := durable.Sleep(ctx, time.Duration(in.Sleep)*time.Millisecond); err != nil {
					return "", err
				}
				note.must(NoteWake, in.ID)
				all.recorded()
				continue
			}
			word, err := durable.WaitSignal[string](ctx, goSignal)
			if err != nil {
				return "", err
			}
			all.recorded()
			proofs = append(proofs, word)
		}
		for _, f := range sent {
			answer, err := answerOf(ctx, f)
			if err != nil {
				return "", err
			}
			proofs = append(proofs, answer)
		}
		return ResultOf(in.ID, proofs), nil
	})
}

// noteStep adds a line to a book of steps.
func (b *book) noteStep(worker string) notes {
	pid := strconv.Itoa(os.Getpid())
	return func(kind NoteKind, words ...string) error {
		return b.line(append([]string{strconv.FormatInt(time.Now().UnixNano(), 10), worker, pid, string(kind)}, words...)...)
	}
}

// noteEvent records the events of the functions' tasks.
func noteEvent(note notes) func(durable.Event) {
	kinds := map[durable.EventKind]NoteKind{durable.EventTask: NoteTask, durable.EventProblem: NoteBack, durable.EventLost: NoteLost}
	return func(e durable.Event) {
		if kind, of := kinds[e.Kind]; of && (e.Function == functionName || e.Function == waitingName) {
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

// StepRecords are the steps in notes, in the order in which they ran first. The notes are in the order of
// time. An act counts as one after the acknowledgement when it is later than the first one of any worker.
func StepRecords(notes []StepNote) []StepRecord {
	steps := map[string]*StepRecord{}
	acked := map[string]StepNote{} // the first of each step
	var order []string
	for _, n := range notes {
		if n.Kind != NoteAct && n.Kind != NoteRan && n.Kind != NoteAck {
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
			s.Runs++
			if ack := acked[n.Promise]; s.Receipt != "" && n.At.After(ack.At) {
				s.RunAfterAck++
				s.Late = append(s.Late, fmt.Sprintf("%s (process %d) acted at %s, %s after %s (process %d) had its acknowledgement",
					n.Worker, n.PID, clockTime(n.At), short3(n.At.Sub(ack.At)), ack.Worker, ack.PID))
			}
		case n.Kind == NoteRan:
			s.Ran = append(s.Ran, n.Proof)
		case s.Receipt == "":
			s.Receipt, acked[n.Promise] = n.Proof, n
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

// AckedByResult adds to notes an acknowledgement, by the client, of each step whose receipt is in a result that a client
// got: the cluster has recorded it before. began is the time from which Execution.Done counts.
func AckedByResult(notes []StepNote, executions []Execution, began time.Time) []StepNote {
	of := map[string]Execution{}
	for _, e := range executions {
		if e.Done >= 0 {
			of[e.ID] = e
		}
	}
	out := slices.Clone(notes)
	for _, n := range notes {
		if e, ended := of[n.Execution]; ended && n.Kind == NoteRan && slices.Contains(strings.Split(e.Result, "|"), n.Proof) {
			out = append(out, StepNote{At: began.Add(e.Done), Worker: "the client", Kind: NoteAck, Execution: n.Execution, Promise: n.Promise, Proof: n.Proof})
		}
	}
	slices.SortStableFunc(out, func(a, b StepNote) int { return a.At.Compare(b.At) })
	return out
}

// SleepRecord is the sleep of one execution, from the books.
type SleepRecord struct {
	Execution string
	// For is how long it was to last; Took is from the first time that the function was about to sleep until
	// it continued for the first time, or 0 when it has not.
	For, Took time.Duration
}

// SleepRecords are the sleeps in notes. The notes are in the order of time.
func SleepRecords(notes []StepNote) []SleepRecord {
	began := map[string]time.Time{}
	at := map[string]int{}
	var out []SleepRecord
	for _, n := range notes {
		i, known := at[n.Execution]
		switch {
		case n.Kind == NoteRest && !known:
			ms, _ := strconv.ParseInt(n.Promise, 10, 64)
			at[n.Execution], began[n.Execution] = len(out), n.At
			out = append(out, SleepRecord{Execution: n.Execution, For: time.Duration(ms) * time.Millisecond})
		case n.Kind == NoteWake && known && out[i].Took == 0:
			out[i].Took = max(1, n.At.Sub(began[n.Execution]))
		}
	}
	return out
}
