package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// EndsOptions say which trials of cancels and restarts to make. The zero value makes each once.
type EndsOptions struct {
	// Rounds is how often each trial is made; default 1.
	Rounds int
	Seed   uint64
	Out    io.Writer
}

// EndsReport is the outcome.
type EndsReport struct {
	Cancels, Restarts int
	// Slowest is the longest between a cancel's request and the answer of a client that waited for the clean-up.
	Slowest    time.Duration
	Violations []string
}

// String is the report for people.
func (r *EndsReport) String() string {
	return fmt.Sprintf("%d cancels, the slowest answered after %s; %d restarts\n", r.Cancels, short3(r.Slowest), r.Restarts)
}

const (
	endsName, endsParentName, endsChildName = "jepsen-ends", "jepsen-ends-parent", "jepsen-ends-child"
	// endsGrace is how long a worker has to acknowledge a cancel, endsCleanup how long a clean-up may take: longer than a
	// lease and a failover, since a task that is lost with its leader comes again when its lease is over. endsNever is the
	// bound of a clean-up that nobody completes. No bound may end an execution later than endsSlack after it, through any
	// one kill.
	endsGrace, endsCleanup, endsNever, endsSlack = 1500 * time.Millisecond, 20 * time.Second, 3 * time.Second, 8 * time.Second
	endsReason                                   = "enough"
)

// endsInput is the input of the function whose cancels are tried. Hangs is what hangs, and ignores its context: "step",
// "undo", or nothing. Cleanup bounds the clean-up.
type endsInput struct {
	Hangs   string
	Cleanup time.Duration
}

// endsFunctions are the functions of the trials.
func endsFunctions() []durable.Registration {
	hang := func() { time.Sleep(time.Hour) } // until its process is killed
	cancelled := durable.NewFunction(endsName, func(ctx durable.Context, in endsInput) (string, error) {
		saga := durable.NewSaga(ctx, durable.CleanupWithin(in.Cleanup))
		_, err := durable.Do(ctx, saga, "take", func(context.Context) (int, error) { return 1, nil },
			func(context.Context, durable.Done[int]) error {
				if in.Hangs == "undo" {
					hang()
				}
				return nil
			})
		if err != nil {
			return "", err
		}
		return durable.Run(ctx, "work", func(ctx context.Context) (string, error) {
			if in.Hangs == "step" {
				hang()
			}
			<-ctx.Done()
			return "", ctx.Err()
		}, durable.WithIntent())
	})
	child := durable.NewFunction(endsChildName, func(ctx durable.Context, _ string) (string, error) {
		return durable.WaitSignal[string](ctx, "go")
	})
	parent := durable.NewFunction(endsParentName, func(ctx durable.Context, childID string) (string, error) {
		return durable.Call(ctx, child, "", durable.ChildID(childID))
	})
	return []durable.Registration{cancelled, child, parent}
}

// endsRun is a run under way.
type endsRun struct {
	o      EndsOptions
	c      *Cluster
	cl     *client.Client
	report *EndsReport
}

// cancelTrial is a cancel under a fault.
type cancelTrial struct {
	// hangs is the function's input. gone: no worker runs from before the cancel on; back: one comes back
	// after the grace.
	hangs      string
	gone, back bool
	// leader is what happens to the partition's leader after the cancel's request: "", "kill" or "pause".
	leader string
}

func (t cancelTrial) String() string {
	return fmt.Sprintf("hangs %q, workers gone %v, back %v, leader %q", t.hangs, t.gone, t.back, t.leader)
}

// completes reports whether a worker completes the clean-up.
func (t cancelTrial) completes() bool { return !t.gone && t.hangs != "undo" || t.back }

func (t cancelTrial) cleanup() time.Duration {
	if t.completes() {
		return endsCleanup
	}
	return endsNever
}

// Ends cancels executions whose workers are gone or hang, while the leader is killed or paused: the grace
// ends each in time, with its reason, the bound of the clean-up ends that, and a client that waits is
// answered. Then it restarts executions while the leader that has their child is paused: no result of the
// former child reaches the new incarnation. The program must call BeWorker.
func Ends(ctx context.Context, c *Cluster, o EndsOptions) (*EndsReport, error) {
	o.Rounds = fallback(o.Rounds, 1)
	if o.Out == nil {
		o.Out = io.Discard
	}
	if missing := 2 - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, 3*time.Second); err != nil {
			return nil, err
		}
	}
	if err := c.waitLevel(ctx); err != nil {
		return nil, err
	}
	cl, err := c.Client(time.Minute)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	r := &endsRun{o: o, c: c, cl: cl, report: &EndsReport{}}
	n := 0
	for range o.Rounds {
		for _, leader := range []string{"", "kill", "pause"} {
			for _, trial := range []cancelTrial{{}, {hangs: "step"}, {hangs: "undo"}, {gone: true}, {gone: true, back: true}} {
				trial.leader = leader
				n++
				if err := r.cancel(ctx, fmt.Sprintf("ends-%x-%d", o.Seed, n), trial); err != nil {
					return r.report, fmt.Errorf("cancel %d (%s): %w", n, trial, err)
				}
			}
		}
		for i, leader := range []string{"", "kill", "pause", "pause"} {
			n++
			if err := r.restart(ctx, fmt.Sprintf("ends-%x-%d", o.Seed, n), leader, i == 3); err != nil {
				return r.report, fmt.Errorf("restart %d (leader %q): %w", n, leader, err)
			}
		}
	}
	r.report.Violations = append(r.report.Violations, Aftermath(ctx, c)...)
	return r.report, nil
}

func (r *endsRun) violate(id, format string, args ...any) {
	r.report.Violations = append(r.report.Violations, id+": "+fmt.Sprintf(format, args...))
}

// cancel makes one trial of a cancel.
func (r *endsRun) cancel(ctx context.Context, id string, trial cancelTrial) error {
	input, err := json.Marshal(endsInput{trial.hangs, trial.cleanup()})
	if err != nil {
		return err
	}
	if _, err := r.cl.Start(ctx, client.StartOptions{ID: id, Function: endsName, Input: input}); err != nil {
		return err
	}
	if err := r.entries(ctx, id, "its work to begin", func(e *perdurev1.Event) bool { return e.GetInvokeStarted().GetPromiseId() == id+":1" }); err != nil {
		return err
	}
	if trial.gone {
		for _, w := range r.c.workers {
			if err := w.Kill(); err != nil {
				return err
			}
		}
	}
	type answer struct {
		client.Cancelled
		err  error
		took time.Duration
	}
	answered, began := make(chan answer, 1), time.Now()
	waiting, stop := context.WithTimeout(ctx, endsGrace+trial.cleanup()+2*endsSlack)
	defer stop()
	go func() {
		got, err := r.cl.CancelWait(waiting, id, endsReason, endsGrace)
		answered <- answer{got, err, time.Since(began)}
	}()
	if err := r.entries(ctx, id, "the request of its cancel", func(e *perdurev1.Event) bool { return e.GetCancelRequested() != nil }); err != nil {
		return err
	}
	heal, err := r.hurt(ctx, id, trial.leader)
	if err != nil {
		return err
	}
	if err := r.entries(ctx, id, "its end", func(e *perdurev1.Event) bool { return e.GetExecutionCancelled() != nil }); err != nil {
		return errors.Join(err, heal())
	}
	if trial.back {
		for _, w := range r.c.workers {
			if err := w.Start(); err != nil {
				return errors.Join(err, heal())
			}
		}
	}
	got := <-answered
	if err := heal(); err != nil {
		return err
	}
	r.report.Cancels++
	r.report.Slowest = max(r.report.Slowest, got.took)
	r.judgeCancel(ctx, id, trial, got.Cancelled, got.err)
	// What hangs ends with its process.
	for _, w := range r.c.workers {
		if err := errors.Join(w.Kill(), w.Start()); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.o.Out, "%s: %s: answered after %s: %v\n", id, trial, short3(got.took), got.err)
	return nil
}

// judgeCancel checks how a cancelled execution and its clean-up have ended, and what the client was told.
func (r *endsRun) judgeCancel(ctx context.Context, id string, trial cancelTrial, got client.Cancelled, told error) {
	var asked, ended *perdurev1.JournalEntry
	for e, err := range r.cl.Journal(ctx, id) {
		if err != nil {
			r.violate(id, "its journal: %v", err)
			return
		}
		switch {
		case e.GetEvent().GetCancelRequested() != nil:
			asked = e
		case e.GetEvent().GetExecutionCancelled() != nil:
			ended = e
		}
	}
	want, least := endsReason, time.Duration(0)
	if trial.gone || trial.hangs == "step" {
		want, least = endsReason+": the grace period ended", endsGrace
	}
	took := time.Duration(ended.GetTimeMs()-asked.GetTimeMs()) * time.Millisecond
	if reason := ended.GetEvent().GetExecutionCancelled().GetReason(); reason != want || took < least || took > endsGrace+endsSlack {
		r.violate(id, "(%s) ended after %v with the reason %q, not after %v with %q", trial, took, reason, least, want)
	}
	if got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED || got.CleanupID == "" {
		r.violate(id, "(%s) the client was told of %v and clean-up %q", trial, got.Status, got.CleanupID)
		return
	}
	cleanup, err := r.cl.Describe(ctx, got.CleanupID)
	if err != nil {
		r.violate(id, "its clean-up: %v", err)
		return
	}
	var failed *client.ExecutionError
	switch {
	case trial.completes() && (told != nil || cleanup.GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED):
		r.violate(id, "(%s) its clean-up is %v, the client was told %v", trial, cleanup.GetStatus(), told)
	case !trial.completes() && (!errors.As(told, &failed) || failed.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED ||
		!strings.Contains(fmt.Sprint(failed.Failure.GetType(), " ", failed.Failure.GetMessage()), "time")):
		r.violate(id, "(%s) the client was told %v of a clean-up that its bound has ended", trial, told)
	}
}

// restart restarts a parent with new children, while the leader of the child's partition is hurt. ended: the
// former child has its answer, so that its result is under way.
func (r *endsRun) restart(ctx context.Context, id, leader string, ended bool) error {
	child := ""
	for i := 0; child == ""; i++ {
		parent := fmt.Sprintf("%s-%d", id, i)
		if _, err := r.cl.Start(ctx, client.StartOptions{ID: parent, Function: endsParentName, Input: fmt.Appendf(nil, "%q", parent+"-child")}); err != nil {
			return err
		}
		if err := r.entries(ctx, parent+"-child", "its wait", func(e *perdurev1.Event) bool { return e.GetExecutionAwaiting() != nil }); err != nil {
			return err
		}
		above, err := r.c.leaderOf(ctx, r.cl, parent)
		if err != nil {
			return err
		}
		below, err := r.c.leaderOf(ctx, r.cl, parent+"-child")
		if err != nil {
			return err
		}
		if above != below || i == 50 { // after a fault one node may lead all for a while
			id, child = parent, parent+"-child"
		} else if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	former, err := r.cl.Describe(ctx, child)
	if err != nil {
		return err
	}
	if ended {
		if err := r.cl.Signal(ctx, child, "go", []byte(`"former"`)); err != nil {
			return err
		}
	}
	heal, err := r.hurt(ctx, child, leader)
	if err != nil {
		return err
	}
	restarted, err := r.cl.Restart(ctx, id, client.RestartOptions{FromEvent: 2, NewChildren: true})
	if err != nil {
		if e, described := r.cl.Describe(ctx, id); ended && described == nil && e.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			return heal() // the result was faster
		}
		return errors.Join(err, heal())
	}
	if leader == "pause" && !ended {
		// The paused leader believes that it leads. What it is sent in the meantime it does when it continues.
		if err := pause(ctx, 2*time.Second); err != nil {
			return errors.Join(err, heal())
		}
	}
	if err := heal(); err != nil {
		return err
	}
	if err := waitFor(ctx, "the child of the new incarnation of "+id, func(ctx context.Context) error {
		e, err := r.cl.Describe(ctx, child)
		if err == nil && (e.GetIncarnation() == former.GetIncarnation() || e.GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED) {
			err = fmt.Errorf("it is %v of incarnation %d", e.GetStatus(), e.GetIncarnation())
		}
		return err
	}); err != nil {
		return err
	}
	// The restart itself starts the child again, so the child may wait before a worker has committed its parent's wait.
	var above *perdurev1.Execution
	if err := waitFor(ctx, "the wait of the new incarnation of "+id, func(ctx context.Context) error {
		e, err := r.cl.Describe(ctx, id)
		if above = e; err == nil && e.GetIncarnation() == restarted.Incarnation && e.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
			err = errors.New("it is running")
		}
		return err
	}); err != nil {
		return err
	}
	if above.GetStatus() != perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED || above.GetIncarnation() != restarted.Incarnation {
		r.violate(id, "it is %v of incarnation %d, the new one is %d, whose child has not ended", above.GetStatus(), above.GetIncarnation(), restarted.Incarnation)
	}
	if err := r.cl.Signal(ctx, child, "go", []byte(`"new"`)); err != nil {
		return err
	}
	got, err := r.cl.Result(ctx, id)
	if err != nil || string(got) != `"new"` {
		r.violate(id, "its result is %s, %v, not that of its new child", got, err)
	}
	r.report.Restarts++
	fmt.Fprintf(r.o.Out, "%s: restarted, leader of the child %q, former child has its answer: %v\n", id, leader, ended)
	return nil
}

// hurt kills or pauses the leader of an execution's partition. heal undoes it.
func (r *endsRun) hurt(ctx context.Context, id, how string) (heal func() error, err error) {
	nothing := func() error { return nil }
	if how == "" {
		return nothing, nil
	}
	n, err := r.c.leaderOf(ctx, r.cl, id)
	if err != nil {
		return nothing, err
	}
	act, undo := n.Kill, n.Start
	if how == "pause" {
		act, undo = n.Pause, n.Resume
	}
	return func() error {
		if err := undo(); err != nil {
			return err
		}
		return r.c.WaitReady(ctx, n)
	}, act()
}

// entries waits until an execution's journal has an entry.
func (r *endsRun) entries(ctx context.Context, id, what string, is func(*perdurev1.Event) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return waitFor(ctx, what, func(ctx context.Context) error {
		for e, err := range r.cl.Journal(ctx, id) {
			if err != nil {
				return err
			}
			if is(e.GetEvent()) {
				return nil
			}
		}
		return fmt.Errorf("the journal of %s lacks it", id)
	})
}
