package jepsen

import (
	"context"
	"errors"
	"fmt"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// Every watchedEach-th run has a watcher besides the client that waits for its result.
const watchedEach = 4

// lateBound is how much later than the client that waits for a run's end its watcher may see it. It is well
// above the time that a client needs to find another node, and below the time after which a node reads by
// itself: a watcher that was not notified shows.
const lateBound = 6 * time.Second

// watch follows a run to its end as a watcher does, and checks each status that it gets. It returns when the
// end was seen, or the zero time.
func (r *GraphRun) watch(ctx context.Context, rec *GraphRecord) (end time.Time, shown int) {
	samples, err := NewGraphSamples(rec.ID, rec.Script)
	if err != nil {
		return end, 0 // reported already
	}
	err = r.until(ctx, func(bool) error {
		for s, err := range r.all.WatchGraph(ctx, rec.ID) {
			if err != nil {
				return err
			}
			wrong, _ := samples.Sample(func() (*perdurev1.GraphStatus, error) { return s, nil })
			for _, text := range wrong {
				r.note(ctx, "to a watcher: "+text)
			}
			if ended(s) {
				end = time.Now()
				return nil
			}
		}
		return errors.New("the watch is over, and the run is not")
	})
	if err != nil {
		r.note(ctx, rec.ID+": watching: "+err.Error())
	}
	return end, samples.Seen
}

// watched notes how much later than its client the watcher of a run saw the end.
func (r *GraphRun) watched(ctx context.Context, rec *GraphRecord, reported, seen time.Time, shown int) {
	if reported.IsZero() || seen.IsZero() {
		return
	}
	late := max(0, seen.Sub(reported))
	if late > lateBound {
		r.note(ctx, fmt.Sprintf("%s: its watcher saw the end %s later than its client", rec.ID, short3(late)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = append(r.late, late)
	r.shown += shown
}
