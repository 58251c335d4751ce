package jepsen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"perdure/client"
)

// sagaPoint is where a saga's worker kills itself: before or after the effect of a step or an undo, or after
// the step, in the function.
type sagaPoint string

func pointOf(kind NoteKind, name, when string) sagaPoint {
	return sagaPoint(fmt.Sprint(kind, "-", name, "-", when))
}

// sagaPoints are the points of a saga of an end: "completes", "fails" after its last step, or "cancelled" after it.
func sagaPoints(end string) (out []sagaPoint) {
	for _, name := range sagaSteps {
		out = append(out, pointOf(NoteApply, name, "before"), pointOf(NoteApply, name, "after"), pointOf(NoteAck, name, "after"))
		if end != "completes" {
			out = append(out, pointOf(NoteUndo, name, "before"), pointOf(NoteUndo, name, "after"))
		}
	}
	return out
}

// die kills the process if it is at the saga's point, for the first time.
func (in sagaInput) die(at sagaPoint) {
	if in.Die != at {
		return
	}
	f, err := os.OpenFile(in.marker(), os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return // it was there before
	}
	_ = f.Close()
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// marker is the file that says that a worker has died at the point.
func (in sagaInput) marker() string { return filepath.Join(in.Marks, in.ID+".died") }

// drawPoint is the n-th saga of those that cover all points.
func drawPoint(o SagaOptions, n int64) (in sagaInput, cancel bool) {
	type at struct {
		end   string
		point sagaPoint
	}
	var all []at
	for _, end := range []string{"completes", "fails", "cancelled"} {
		for _, p := range sagaPoints(end) {
			all = append(all, at{end, p})
		}
	}
	one := all[int(n-1)%len(all)]
	in = sagaInput{ID: fmt.Sprintf("%s-%d", o.Prefix, n), Step: 4, Sleep: 4, Die: one.point, Marks: o.marks}
	switch one.end {
	case "fails":
		in.Fail, in.At = failAfter, len(sagaSteps)-1
	case "cancelled":
		in.Waits, cancel = true, true
	}
	return in, cancel
}

// sagaPointCount is how many sagas cover all points.
func sagaPointCount() (n int) {
	for _, end := range []string{"completes", "fails", "cancelled"} {
		n += len(sagaPoints(end))
	}
	return n
}

// waits blocks until a saga waits after its last step.
func (r *sagaRun) waits(ctx context.Context, cl *client.Client, id string) error {
	return waitFor(ctx, "the last step of "+id, func(ctx context.Context) error {
		e, err := cl.Describe(ctx, id)
		if err == nil && e.GetWaiting().GetSignalName() != "never" {
			err = errors.New("it has not come that far")
		}
		return err
	})
}

// revive starts workers that have killed themselves, until ctx ends.
func revive(ctx context.Context, c *Cluster) error {
	for {
		for _, w := range c.workers {
			if err := w.startExpendable(); err != nil {
				return err
			}
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return nil //nolint:nilerr // the run is over
		}
	}
}

// notDied lists the sagas whose worker never came to the point at which it should kill itself.
func notDied(records []*sagaRecord) (out []string) {
	for _, rec := range records {
		if rec.In.Die == "" {
			continue
		}
		if _, err := os.Stat(rec.In.marker()); err != nil {
			out = append(out, fmt.Sprintf("%s: no worker was killed at %s", rec.In.ID, rec.In.Die))
		}
	}
	slices.Sort(out)
	return out
}
