package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// backupJudge reads a restored cluster.
type backupJudge struct {
	cl       *client.Client
	load     *backupLoad
	ev       *RestoreEvidence
	deadline time.Time
	graphs   []*GraphRecord
	// begun are the attempts of graphs that had their results before any worker came.
	begun map[string]bool

	mu    sync.Mutex
	wrong []string
}

// missing reports whether there is no such execution.
func missing(err error) bool { return api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) }

func (j *backupJudge) violate(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

// judge notes what was restored, has workers finish it, and checks all.
func (r *backupRound) judge(ctx context.Context, c *Cluster) error {
	cl, err := c.Client(30 * time.Second)
	if err != nil {
		return err
	}
	defer cl.Close()
	j := &backupJudge{cl: cl, load: r.load, ev: &RestoreEvidence{Cut: r.cut, Boxes: map[string]map[string]int{}, Completed: map[string]bool{}},
		begun: map[string]bool{}}
	for _, e := range r.load.executions {
		j.ev.Executions = append(j.ev.Executions, *e)
	}
	for _, t := range r.load.transfers {
		j.ev.Transfers = append(j.ev.Transfers, *t)
	}
	if err := errors.Join(j.restored(ctx), j.restoredGraphs(ctx)); err != nil {
		return err
	}
	if err := c.StartWorkers(ctx, r.o.Workers, 64, r.o.Lease); err != nil {
		return err
	}
	j.deadline = time.Now().Add(r.o.Bound)
	if err := errors.Join(j.finish(ctx), j.finishGraphs(ctx)); err != nil {
		return err
	}
	if err := j.readBoxes(ctx); err != nil {
		return err
	}
	var busy []string
	if j.ev.Ledgers, busy, err = readLedgers(ctx, cl, r.load.accounts); err != nil {
		return err
	}
	if j.ev.Before, err = r.c.Steps(r.load.prefix + "-"); err != nil {
		return err
	}
	if j.ev.After, err = c.Steps(r.load.prefix + "-"); err != nil {
		return err
	}
	if err := j.checkGraphs(r.c, c); err != nil {
		return err
	}
	r.count(j)
	r.wrong = append(append(append(r.wrong, j.wrong...), busy...), CheckRestore(j.ev)...)
	r.wrong = append(r.wrong, Aftermath(ctx, c)...)
	verdict, err := c.Verify(ctx)
	r.wrong = append(r.wrong, verdict...)
	return err
}

// count fills in the figures.
func (r *backupRound) count(j *backupJudge) {
	t := &r.report
	t.All = [3]int{len(j.ev.Executions), len(j.ev.Transfers), len(r.load.graphs)}
	t.Graphs = len(j.graphs)
	for _, e := range j.ev.Executions {
		if e.Restored != Missing {
			t.Executions++
		}
		if e.Restored == NotFinished {
			t.Unfinished++
		}
	}
	for _, transfer := range j.ev.Transfers {
		if transfer.Found {
			t.Transfers++
		}
	}
	for _, payloads := range j.ev.Boxes {
		t.Signals += len(payloads)
	}
	for _, n := range j.ev.After {
		if n.Kind == NoteAct {
			t.Steps++
		}
	}
}

// restored reads what there is before any worker.
func (j *backupJudge) restored(ctx context.Context) error {
	var jobs []func(context.Context) error
	for i := range j.ev.Executions {
		e := &j.ev.Executions[i]
		jobs = append(jobs, func(ctx context.Context) (err error) {
			if e.Restored, err = j.result(ctx, e.ID, time.Millisecond); err != nil || e.Restored != NotFinished {
				return err
			}
			for entry, err := range j.cl.Journal(ctx, e.ID) {
				if err != nil {
					return err
				}
				if done := entry.GetEvent().GetInvokeCompleted(); done != nil {
					j.mu.Lock()
					j.ev.Completed[done.GetPromiseId()] = true
					j.mu.Unlock()
				}
				if entry.GetEvent().GetSignalDelivered().GetName() == goSignal {
					e.RestoredWords++
				}
			}
			return nil
		})
	}
	for i := range j.ev.Transfers {
		t := &j.ev.Transfers[i]
		jobs = append(jobs, func(ctx context.Context) error {
			_, _, err := j.cl.PollResult(ctx, t.ID, time.Millisecond)
			if t.Found = !missing(err); !t.Found {
				return nil
			}
			return err
		})
	}
	return inParallel(ctx, 32, jobs)
}

// result waits for the result of an execution: Missing, NotFinished, or the result.
func (j *backupJudge) result(ctx context.Context, id string, wait time.Duration) (string, error) {
	data, done, err := j.cl.PollResult(ctx, id, wait)
	switch {
	case missing(err):
		return Missing, nil
	case err != nil:
		return "", err
	case !done:
		return NotFinished, nil
	}
	var found string
	if err := json.Unmarshal(data, &found); err != nil {
		return "", fmt.Errorf("%s: result %q: %w", id, data, err)
	}
	return found, nil
}

// finish sends the signals that are not there, and waits for the end of all that was restored.
func (j *backupJudge) finish(ctx context.Context) error {
	var jobs []func(context.Context) error
	for i := range j.ev.Executions {
		e := &j.ev.Executions[i]
		if e.Found = e.Restored; e.Restored != NotFinished {
			continue
		}
		jobs = append(jobs, func(ctx context.Context) (err error) {
			if e.Word != "" && e.RestoredWords == 0 {
				if err := e.sendWord(ctx, j.cl); err != nil {
					return err
				}
			}
			for e.Found == NotFinished && time.Now().Before(j.deadline) && err == nil {
				e.Found, err = j.result(ctx, e.ID, 5*time.Second)
			}
			if err != nil || e.Found == NotFinished || e.Found == Missing {
				return err
			}
			words := 0
			if e.Journal, words, err = readJournal(ctx, j.cl, e.ID); e.Word != "" {
				e.Words = words
			}
			return err
		})
	}
	for i := range j.ev.Transfers {
		t := &j.ev.Transfers[i]
		if !t.Found {
			continue
		}
		jobs = append(jobs, func(ctx context.Context) error {
			for !t.Ended && time.Now().Before(j.deadline) {
				data, done, err := j.cl.PollResult(ctx, t.ID, 5*time.Second)
				if err != nil {
					return fmt.Errorf("%s: %w", t.ID, err)
				}
				if done {
					t.Ended, t.FoundMoved = true, string(data) == strconv.FormatBool(true)
				}
			}
			return nil
		})
	}
	return inParallel(ctx, 64, jobs)
}

// readBoxes counts the signals in the boxes. Each has until the deadline to have those of executions that ended.
func (j *backupJudge) readBoxes(ctx context.Context) error {
	wanted := map[string][]string{}
	for _, e := range j.ev.Executions {
		if e.Box != "" && e.Found != Missing && e.Found != NotFinished {
			for i := range e.Sent {
				wanted[e.Box] = append(wanted[e.Box], sentPayload(e.ID, i))
			}
		}
	}
	var jobs []func(context.Context) error
	for _, box := range j.load.boxes {
		jobs = append(jobs, func(ctx context.Context) error {
			for {
				found := map[string]int{}
				for entry, err := range j.cl.Journal(ctx, box) {
					if missing(err) {
						j.violate("lost: %s was acknowledged before the load began, and is not there", box)
						return nil
					} else if err != nil {
						return err
					}
					if d := entry.GetEvent().GetSignalDelivered(); d != nil {
						var payload string
						if err := json.Unmarshal(d.GetPayload().GetValue(), &payload); err != nil {
							return fmt.Errorf("%s: signal %q: %w", box, d.GetPayload().GetValue(), err)
						}
						found[payload]++
					}
				}
				lacking := 0
				for _, payload := range wanted[box] {
					if found[payload] == 0 {
						lacking++
					}
				}
				if lacking == 0 || time.Now().After(j.deadline) {
					j.mu.Lock()
					defer j.mu.Unlock()
					j.ev.Boxes[box] = found
					return nil
				}
				if err := pause(ctx, 10*pollInterval); err != nil {
					return err
				}
			}
		})
	}
	return inParallel(ctx, 8, jobs)
}

// restoredGraphs notes which graphs there are, and which of their attempts have results.
func (j *backupJudge) restoredGraphs(ctx context.Context) error {
	for _, g := range j.load.graphs {
		s, err := j.cl.GraphStatus(ctx, g.ID)
		if missing(err) {
			if before(g.acked, j.ev.Cut) {
				j.violate("lost: %s was acknowledged %s before the backup began, and is not there", g.ID, short3(j.ev.Cut-g.acked))
			}
			continue
		} else if err != nil {
			return err
		}
		rec := g.GraphRecord
		rec.Acked = true
		j.graphs = append(j.graphs, &rec)
		for _, n := range s.GetNodes() {
			if n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_COMPLETED && n.GetAttemptId() != "" {
				j.begun[n.GetAttemptId()] = true
			}
		}
	}
	return nil
}

// finishGraphs sends all signals of the graphs, again or for the first time, and waits for their ends.
func (j *backupJudge) finishGraphs(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, j.deadline)
	defer cancel()
	run := &GraphRun{all: j.cl, records: j.graphs}
	var jobs []func(context.Context) error
	for _, rec := range j.graphs {
		jobs = append(jobs, func(ctx context.Context) error {
			for _, name := range rec.Script.Signals {
				run.signal(ctx, rec.ID, name)
			}
			err := waitFor(ctx, rec.ID, func(ctx context.Context) error {
				s, err := j.cl.GraphStatus(ctx, rec.ID)
				if err == nil && !ended(s) {
					err = errors.New(unfinished(s))
				}
				return err
			})
			if err != nil && ctx.Err() == nil {
				return err
			}
			return nil // one that is stuck is found when it is read
		})
	}
	err := inParallel(ctx, 16, jobs)
	j.wrong = append(j.wrong, run.wrong...)
	return err
}

// checkGraphs checks all graphs that were restored.
func (j *backupJudge) checkGraphs(first, restored *Cluster) error {
	ctx, cancel := context.WithTimeout(context.Background(), healTimeout)
	defer cancel()
	run := &GraphRun{all: j.cl, records: j.graphs}
	if err := run.readBack(ctx); err != nil {
		return err
	}
	after, err := restored.Calls()
	if err != nil {
		return err
	}
	for _, c := range after {
		if j.begun[c.Attempt] {
			j.violate("ran again: %s of node %s began, and the backup has its result", c.Attempt, c.Node)
		}
	}
	earlier, err := first.Calls()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, rec := range j.graphs {
		attemptsOf(rec, known)
	}
	for _, c := range earlier {
		if known[c.Attempt] { // the first cluster went on after the cut, perhaps to further attempts
			after = append(after, c)
		}
	}
	verdict := CheckGraphs(j.graphs, after, nil)
	for _, text := range verdict.Violations() {
		j.violate("graph: %s", text)
	}
	return nil
}

// attemptsOf notes the attempts that a run and its subgraphs have.
func attemptsOf(r *GraphRecord, known map[string]bool) {
	for _, n := range r.Status.GetNodes() {
		if n.GetAttemptId() == "" {
			continue
		}
		for _, id := range attemptIDs(n) {
			known[id] = true
			if sub := r.Subs[id]; sub != nil {
				attemptsOf(sub, known)
			}
		}
	}
}
