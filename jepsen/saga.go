package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// SagaOptions say which sagas to run. The zero value is 200 sagas under SagaFaults.
type SagaOptions struct {
	// N sagas at least; default 200. More are run while faults still last. A third of them completes, a third
	// fails at a drawn step, and a third is cancelled at a drawn moment. Clients each run one at a time;
	// default 24.
	N, Clients int
	// Workers, Lease, Timeout, Faults, Warm, Hold and Cool are as with Executions. Rounds is how many faults
	// there are at least; they follow each other until all sagas were begun. Negative: none.
	Workers          int
	Lease, Timeout   time.Duration
	Faults           []Fault
	Rounds           int
	Warm, Hold, Cool time.Duration
	// Points has the worker of each saga kill itself at one point: before or after each effect and each undo,
	// in line and in the clean-up, and between two steps. N is at least as many as there are points.
	Points bool
	marks  string
	// Bug is one of SagaBugs, planted in the function; empty for none.
	Bug    string
	Prefix string
	Seed   uint64
	Out    io.Writer
}

func (o *SagaOptions) fill() {
	if o.Points {
		o.Rounds = fallback(o.Rounds, -1)
		o.N, o.Lease = max(o.N, sagaPointCount()), fallback(o.Lease, 2*time.Second)
	}
	o.N, o.Clients, o.Workers = fallback(o.N, 200), fallback(o.Clients, 24), fallback(o.Workers, 3)
	o.Lease, o.Timeout = fallback(o.Lease, 5*time.Second), fallback(o.Timeout, 2*time.Minute)
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults(SagaFaults)
	}
	o.Rounds = fallback(o.Rounds, len(o.Faults))
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, time.Second), fallback(o.Hold, 4*time.Second), fallback(o.Cool, time.Second)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("saga-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// SagaFaults kill and hold up workers and leaders, and break links in one direction.
const SagaFaults = "kill-worker,kill-leader,pause-worker,one-way,kill-worker,stop-worker"

// SagaBugs are bugs that SagaOptions.Bug plants: an undo without an effect, undos in the order of their
// steps, and an undo that is registered twice.
var SagaBugs = []string{bugSkip, bugForward, bugTwice}

const bugSkip, bugForward, bugTwice = "skip", "forward", "twice"

// SagaReport is the outcome of a run of sagas.
type SagaReport struct {
	Completed, Failed, Cancelled int
	// Cleanups of the cancelled sagas; of them, Interrupted began when the saga was being undone in line.
	// Unknown counts the undos of steps without a recorded result, Refused the effects that came after their
	// undo.
	Cleanups, Interrupted, Unknown, Refused int
	// Slowest is the longest that a clean-up took.
	Slowest, Took time.Duration
	Faults        []string
	Violations    []string
}

// String is the report for people.
func (r *SagaReport) String() string {
	return fmt.Sprintf("%d sagas completed, %d failed, %d cancelled in %s\n%d clean-ups, %d of a saga that was being undone, the slowest %s; "+
		"%d undos of steps without a result, %d effects refused after their undo\nfaults: %s\n",
		r.Completed, r.Failed, r.Cancelled, r.Took.Round(time.Millisecond), r.Cleanups, r.Interrupted, short3(r.Slowest),
		r.Unknown, r.Refused, strings.Join(r.Faults, ", "))
}

const (
	sagaName    = "jepsen-saga"
	sagaRefused = "no-luck" // the type of a saga's failure
	sagaReason  = "the traveller stays at home"
	// sagaCleanup bounds a clean-up. It is far beyond any fault.
	sagaCleanup = 90 * time.Second
	// unknownProof is what an undo notes of a step whose result it does not know.
	unknownProof = "?"
)

var sagaSteps = []string{"reserve", "charge", "book", "ship"}

// Kinds of notes of sagas: the effect of a step and its undo, each with the step's promise id as the key.
const (
	NoteApply NoteKind = "apply"
	NoteUndo  NoteKind = "undo"
)

// sagaFailure is how a saga fails.
type sagaFailure string

const (
	failNot      sagaFailure = ""
	failRefused  sagaFailure = "refused"  // the step is refused and has no effect
	failBroken   sagaFailure = "broken"   // the step has its effect, and all its attempts fail
	failAfter    sagaFailure = "after"    // the function fails after the step
	failRollback sagaFailure = "rollback" // the function rolls back after the step, and fails
)

// sagaInput is the input of a saga.
type sagaInput struct {
	ID string `json:"id"`
	// Fail is how it fails, at step At.
	Fail sagaFailure `json:"fail,omitempty"`
	At   int         `json:"at,omitempty"`
	// Step is how long a step or an undo takes, Sleep how long the function sleeps after each step, both in
	// milliseconds.
	Step, Sleep int64
	// Flaky has the first attempt of each undo fail after its effect.
	Flaky bool `json:"flaky,omitempty"`
	// Die is where a worker kills itself, once; Marks is the folder that says so. Waits has it wait after its
	// last step.
	Die   sagaPoint `json:"die,omitempty"`
	Marks string    `json:"marks,omitempty"`
	Waits bool      `json:"waits,omitempty"`
	Bug   string    `json:"bug,omitempty"`
}

// drawSaga draws the n-th saga. cancelAfter is negative unless its client cancels it; some of those fail too,
// so that the cancel interrupts their undos.
func drawSaga(o SagaOptions, n int64) (in sagaInput, cancelAfter time.Duration) {
	rng := rand.New(rand.NewPCG(o.Seed, uint64(1000+n)))
	in = sagaInput{ID: fmt.Sprintf("%s-%d", o.Prefix, n), Step: rng.Int64N(60), Sleep: rng.Int64N(60), Flaky: rng.IntN(3) == 0, Bug: o.Bug}
	cancelAfter = -1
	if n%3 == 2 {
		cancelAfter = time.Duration(rng.IntN(1+rng.IntN(600))) * time.Millisecond
	}
	if n%3 == 1 || n%3 == 2 && rng.IntN(3) == 0 {
		in.Fail = []sagaFailure{failRefused, failBroken, failAfter, failRollback}[rng.IntN(4)]
		in.At = rng.IntN(len(sagaSteps))
	}
	return in, cancelAfter
}

// sagaFunction is the saga. Its outside world is the books: an effect and its undo carry the step's key, an effect that
// is repeated counts once, and one that comes after its undo is refused.
func sagaFunction(note notes) *durable.Function[sagaInput, string] {
	return durable.NewFunction(sagaName, func(ctx durable.Context, in sagaInput) (string, error) {
		often := durable.RetryPolicy{MaxAttempts: 1000, Initial: 10 * time.Millisecond, Max: time.Second}
		saga := durable.NewSaga(ctx, durable.CleanupWithin(sagaCleanup), durable.UndoRetry(often))
		// The pause before an effect lets a worker be held up there, and have its effect too late.
		act := func(ctx context.Context, kind NoteKind, name, key, proof string) error {
			if err := pause(ctx, time.Duration(in.Step)*time.Millisecond/2); err != nil {
				return err
			}
			in.die(pointOf(kind, name, "before"))
			note.must(kind, in.ID, key, proof)
			in.die(pointOf(kind, name, "after"))
			return pause(ctx, time.Duration(in.Step)*time.Millisecond/2)
		}
		undo := func(name string) func(context.Context, durable.Done[string]) error {
			return func(ctx context.Context, done durable.Done[string]) error {
				if in.Bug == bugSkip && name == "charge" {
					return nil
				}
				proof := unknownProof
				if done.Known {
					proof = done.Result
				}
				if err := act(ctx, NoteUndo, name, done.PromiseID, proof); err != nil {
					return err
				}
				if in.Flaky && durable.StepInfo(ctx).Attempt == 1 {
					return errors.New("the first attempt of an undo fails")
				}
				return nil
			}
		}
		undoLater := func(ctx durable.Context, name string, done durable.Done[string]) error {
			_, err := durable.Run(ctx, "undo "+name, func(ctx context.Context) (string, error) {
				return "", undo(name)(ctx, done)
			}, durable.WithRetry(often))
			return err
		}
		var forward []func(ctx durable.Context) error
		if in.Bug == bugForward {
			saga.Undo(func(ctx durable.Context) error {
				for _, one := range forward {
					if err := one(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
		refused := &durable.Error{Type: sagaRefused, Message: string(in.Fail)}
		for i, name := range sagaSteps {
			fails := in.Fail != failNot && in.At == i
			retry := often
			if fails && in.Fail == failBroken {
				retry.MaxAttempts = 2
			}
			step := func(ctx context.Context) (string, error) {
				if fails && in.Fail == failRefused {
					return "", durable.Permanent(refused)
				}
				proof := newProof()
				if err := act(ctx, NoteApply, name, durable.StepInfo(ctx).PromiseID, proof); err != nil {
					return "", err
				}
				if fails && in.Fail == failBroken {
					return "", refused
				}
				return proof, nil
			}
			var proof string
			var err error
			if in.Bug == bugForward {
				if proof, err = durable.Run(ctx, name, step, durable.WithRetry(retry), durable.WithIntent()); err == nil {
					done := durable.Done[string]{Result: proof, Known: true, PromiseID: fmt.Sprintf("%s:%d", in.ID, 2*i)}
					forward = append(forward, func(ctx durable.Context) error { return undoLater(ctx, name, done) })
				}
			} else if proof, err = durable.Do(ctx, saga, name, step, undo(name), durable.WithRetry(retry)); err == nil && in.Bug == bugTwice {
				done := durable.Done[string]{Result: proof, Known: true, PromiseID: fmt.Sprintf("%s:%d", in.ID, 2*i)}
				saga.Undo(func(ctx durable.Context) error { return undoLater(ctx, name, done) })
			}
			if err == nil {
				in.die(pointOf(NoteAck, name, "after"))
			}
			switch {
			case errors.Is(err, durable.ErrCancelled):
				return "", err
			case err != nil && fails:
				return "", refused
			case err != nil:
				return "", err
			case fails && in.Fail == failRollback:
				if err := saga.Rollback(ctx); err != nil {
					return "", err
				}
				return "", refused
			case fails:
				return "", refused
			}
			if err := durable.Sleep(ctx, time.Duration(in.Sleep)*time.Millisecond); err != nil {
				return "", err
			}
		}
		if in.Waits {
			_, err := durable.WaitSignal[string](ctx, "never")
			return "", err
		}
		return in.ID, nil
	})
}

// sagaRun is a run in progress.
type sagaRun struct {
	o    SagaOptions
	fn   *durable.Function[sagaInput, string]
	made atomic.Int64
	over atomic.Bool

	mu    sync.Mutex
	ended []*sagaRecord
}

// Sagas runs sagas while the cluster is broken and repaired. Some complete, some fail, and some are
// cancelled; afterwards their journals and the ledger outside are checked. An error means that the run could
// not be made.
func Sagas(ctx context.Context, c *Cluster, o SagaOptions) (*SagaReport, error) {
	o.fill()
	r := &sagaRun{o: o, fn: sagaFunction(nil)} // to be started only: workers have their own
	if missing := o.Workers - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, o.Lease); err != nil {
			return nil, err
		}
	}
	if err := c.waitLevel(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var clients, reviving sync.WaitGroup
	defer reviving.Wait()
	defer cancel()
	if o.Points {
		r.o.marks = c.Dir()
		reviving.Go(func() {
			if err := revive(running, c); err != nil {
				c.unexpected("starting a worker again: %v", err)
			}
		})
	}
	var err error
	for range o.Clients {
		var cl *client.Client
		if cl, err = c.Client(o.Timeout); err != nil {
			break
		}
		clients.Go(func() {
			defer cl.Close()
			for running.Err() == nil && (!r.over.Load() || r.made.Load() < int64(o.N)) {
				r.one(ctx, cl)
			}
		})
	}
	report := &SagaReport{}
	rng := rand.New(rand.NewPCG(o.Seed, 3))
	for i := 0; err == nil && (i < o.Rounds || o.Rounds > 0 && r.made.Load() < int64(o.N)); i++ {
		least := int(r.made.Load()) + o.Clients
		f := o.Faults[i%len(o.Faults)]
		var w *Wound
		w, err = underFault(ctx, c, f, o.Warm, f.holds(o.Hold, o.Lease, rng), o.Cool, rng,
			func() error { return fewer(int(r.made.Load()), least, "sagas") })
		if err == nil {
			fmt.Fprintf(o.Out, "fault %d: %s of %s, %d sagas so far\n", i+1, w.Fault.Name, w.Names(), r.made.Load())
			report.Faults = append(report.Faults, w.Fault.Name)
		}
	}
	r.over.Store(true)
	if err != nil {
		cancel()
	}
	clients.Wait()
	report.Took = time.Since(began)
	if err != nil {
		return nil, err
	}
	if err := r.readBack(ctx, c); err != nil {
		return nil, fmt.Errorf("looking up the sagas: %w", err)
	}
	report.add(r.ended)
	report.Violations = append(report.Violations, notDied(r.ended)...)
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// one runs one saga and records the client's answer.
func (r *sagaRun) one(ctx context.Context, cl *client.Client) {
	n := r.made.Add(1)
	in, cancelAfter := drawSaga(r.o, n)
	rec := &sagaRecord{In: in, Cancel: cancelAfter >= 0}
	if r.o.Points {
		in, rec.Cancel = drawPoint(r.o, n)
		rec.In = in
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
	defer cancel()
	h, err := r.fn.Start(ctx, cl, in.ID, in)
	if err == nil && rec.Cancel {
		if r.o.Points {
			err = r.waits(ctx, cl, in.ID)
		} else {
			err = pause(ctx, cancelAfter)
		}
		if err == nil {
			var got client.Cancelled
			got, err = cl.CancelWait(ctx, in.ID, sagaReason, 2*time.Second)
			rec.Answer = got.Status
		}
	}
	if err == nil {
		_, err = h.Result(ctx)
	}
	var ended *client.ExecutionError
	switch {
	case errors.As(err, &ended) && ended.ID == in.ID:
		rec.answer(ended.Status)
	case err != nil:
		rec.Err = err.Error()
	default:
		rec.answer(perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, rec)
}

// readBack reads what became of each saga: its status, its journals, and the books.
func (r *sagaRun) readBack(ctx context.Context, c *Cluster) error {
	cl, err := c.Client(30 * time.Second)
	if err != nil {
		return err
	}
	defer cl.Close()
	notes, err := c.Steps(r.o.Prefix + "-")
	if err != nil {
		return err
	}
	lines := map[string][]StepNote{}
	for _, n := range notes {
		if n.Kind == NoteApply || n.Kind == NoteUndo {
			lines[n.Execution] = append(lines[n.Execution], n)
		}
	}
	var jobs []func(context.Context) error
	for _, rec := range r.ended {
		rec.Ledger = lines[rec.In.ID]
		jobs = append(jobs, func(ctx context.Context) error {
			e, err := cl.Describe(ctx, rec.In.ID)
			if api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) {
				return nil // its client's answer says more
			} else if err != nil {
				return err
			}
			rec.Status, rec.Failure, rec.Reason = e.GetStatus(), e.GetOutcome().GetFailure().GetType(), e.GetCancelReason()
			rec.Cleanup = e.GetCleanup().GetId()
			journal, err := readAll(ctx, cl, rec.In.ID)
			if err != nil {
				return err
			}
			rec.readJournal(journal)
			if rec.Cleanup == "" {
				return nil
			}
			// It has ended before its client's CancelWait returned, or the client has noted an error.
			clean, err := cl.Describe(ctx, rec.Cleanup)
			if err != nil {
				return err
			}
			rec.CleanupStatus = clean.GetStatus()
			rec.CleanupTook = time.Duration(clean.GetClosedMs()-clean.GetCreatedMs()) * time.Millisecond
			if journal, err = readAll(ctx, cl, rec.Cleanup); err == nil {
				rec.readCleanup(journal)
			}
			return err
		})
	}
	return inParallel(ctx, 16, jobs)
}

// readAll is the whole journal of an execution.
func readAll(ctx context.Context, cl *client.Client, id string) (out []*perdurev1.JournalEntry, err error) {
	for entry, err := range cl.Journal(ctx, id) {
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	return out, nil
}

// add adds up the records and their violations.
func (r *SagaReport) add(records []*sagaRecord) {
	for _, rec := range records {
		switch rec.Status {
		case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED:
			r.Completed++
		case perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED:
			r.Failed++
		default:
			r.Cancelled++
		}
		if rec.Cleanup != "" {
			r.Cleanups++
			r.Slowest = max(r.Slowest, rec.CleanupTook)
			if rec.In.Fail != failNot && len(rec.Undone) > 0 {
				r.Interrupted++
			}
		}
		undone := map[string]bool{}
		for _, n := range rec.Ledger {
			switch {
			case n.Kind == NoteApply && undone[n.Promise]:
				r.Refused++
			case n.Kind == NoteUndo && !undone[n.Promise]:
				undone[n.Promise] = true
				if n.Proof == unknownProof {
					r.Unknown++
				}
			}
		}
		for _, wrong := range rec.check() {
			r.Violations = append(r.Violations, rec.In.ID+": "+wrong)
		}
	}
	slices.Sort(r.Violations)
	if len(records) >= 30 && (r.Completed == 0 || r.Failed == 0 || r.Cleanups == 0) {
		r.Violations = append(r.Violations, "a way to end, or the clean-up, was not tried")
	}
}
