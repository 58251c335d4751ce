package rpc_test

import (
	"fmt"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// notifiedWithin is below watchAgain, after which a watch reads without a notification, and far above what a
// notification takes.
const notifiedWithin = 8 * time.Second

// manySignals is a graph of nodes that wait for a signal each, s0, s1 and so on, in any order.
func manySignals(n int) *perdurev1.Graph {
	g := &perdurev1.Graph{}
	for i := range n {
		g.Nodes = append(g.Nodes, waitsFor(fmt.Sprint("n", i), fmt.Sprint("s", i)))
	}
	return g
}

func (w *world) submit(id string, g *perdurev1.Graph) *perdurev1.GraphStatus {
	w.t.Helper()
	if _, err := w.graphs().Submit(soon(w.t), &perdurev1.SubmitGraphRequest{Namespace: w.ns, Id: id, Graph: g, Request: rid()}); err != nil {
		w.t.Fatal(err)
	}
	return w.graphStatus(id)
}

// next asks for what comes after a status, as a watcher does.
func (w *world) next(last *perdurev1.GraphStatus) (*perdurev1.GraphStatus, error) {
	return w.graphs().GetStatus(soon(w.t), &perdurev1.GraphStatusRequest{Namespace: w.ns, Id: last.Id, AfterVersion: last.Version,
		AfterIncarnation: last.Incarnation, WaitMs: testTimeout.Milliseconds()})
}

// A run that changes all the time is shown about ten times a second, in the newest state, up to its end.
func TestGraphWatchPace(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := newWorld(t)
	const signals = 600
	s := w.submit("run", manySignals(signals))
	sent := make(chan error, 1)
	go func() {
		for i := range signals {
			if _, err := w.executions.Signal(soon(t), &perdurev1.SignalRequest{Namespace: w.ns, Id: "run", Name: fmt.Sprint("s", i),
				Payload: []byte("1"), Request: rid()}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	began, first, answers := time.Now(), s.Version, 0
	for s.Status == perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING {
		now, err := w.next(s)
		if err != nil {
			t.Fatal(err)
		}
		if now.Version <= s.Version {
			t.Fatalf("after version %d came %d", s.Version, now.Version)
		}
		s = now
		answers++
	}
	took := time.Since(began)
	if err := receive(t, "end of the signals", sent); err != nil {
		t.Fatal(err)
	}
	if most := int(took/(100*time.Millisecond)) + 1; answers > most {
		t.Errorf("%d answers in %v, at most %d are allowed", answers, took, most)
	}
	if s.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
		t.Errorf("it ended as %v", s.Status)
	}
	t.Logf("%d versions in %d answers, %v", s.Version-first, answers, took)
}

// A watcher gets a change at once, on whichever node it is and whichever leads the run.
func TestGraphWatchNotified(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	const runs, changes = 4, 6 // of four partitions
	var slowest time.Duration
	for i := range runs {
		id := fmt.Sprint("run-", i)
		last := nodes[i%3].submit(id, manySignals(changes+1))
		for n := range changes {
			answers := make(chan *perdurev1.GraphStatus, len(nodes))
			for _, at := range nodes {
				go func() {
					s, err := at.next(last)
					if err != nil {
						t.Errorf("%s at %s: %v", id, at.ns, err)
					}
					answers <- s
				}()
			}
			// Some ask before it changes, some after.
			nodes[n%3].signal(id, fmt.Sprint("s", n), "1")
			began := time.Now()
			before := last
			for range nodes {
				s := receive(t, "answer", answers)
				if s.GetVersion() <= before.Version {
					t.Fatalf("%s: after version %d came %v", id, before.Version, s)
				}
			}
			slowest = max(slowest, time.Since(began))
			last = nodes[(n+1)%3].graphStatus(id)
		}
	}
	if slowest > notifiedWithin {
		t.Errorf("the slowest was notified after %v", slowest)
	}
	t.Logf("the slowest was notified after %v", slowest)
}

// A watcher that saw a run before its end and its retry gets the next incarnation at once, at any version of
// it.
func TestGraphWatchRetry(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	for i, at := range nodes {
		id := fmt.Sprint("run-", i)
		seen := at.submit(id, manySignals(3))
		at.signal(id, "s0", "1")
		later := at.graphStatus(id)
		if _, err := at.executions.Terminate(soon(t), &perdurev1.TerminateRequest{Namespace: at.ns, Id: id, Request: rid()}); err != nil {
			t.Fatal(err)
		}
		until(t, "the end", func() error {
			if s := at.graphStatus(id); s.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
				return fmt.Errorf("it is %v", s.Status)
			}
			return nil
		})
		r, err := at.graphs().Retry(soon(t), &perdurev1.RetryGraphRequest{Namespace: at.ns, Id: id, Request: rid()})
		if err != nil {
			t.Fatal(err)
		}
		now := at.graphStatus(id)
		for _, other := range nodes {
			// At a lower version than the next incarnation's, at the same, and at a higher one.
			for _, version := range []uint64{seen.Version, now.Version, later.Version + 100} {
				began := time.Now()
				s, err := other.next(&perdurev1.GraphStatus{Id: id, Incarnation: seen.Incarnation, Version: version})
				if err != nil || s.Incarnation != r.Incarnation {
					t.Fatalf("after version %d of incarnation %d: %v, %v", version, seen.Incarnation, s, err)
				}
				if took := time.Since(began); took > notifiedWithin {
					t.Errorf("after version %d of incarnation %d it took %v", version, seen.Incarnation, took)
				}
			}
		}
		// The run advances, and a watcher that has seen the new incarnation is notified.
		answer := make(chan *perdurev1.GraphStatus, 1)
		go func() {
			s, err := nodes[(i+1)%3].next(now)
			if err != nil {
				t.Error(err)
			}
			answer <- s
		}()
		at.signal(id, "s1", "1")
		if s := receive(t, "answer", answer); s.GetIncarnation() != r.Incarnation || s.GetVersion() <= now.Version {
			t.Errorf("in the new incarnation came %v", s)
		}
	}
}
