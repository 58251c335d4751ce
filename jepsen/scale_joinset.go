package jepsen

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
)

// joinFunctions are a function that joins children by a join set, and such a child. The joiner returns the
// digest of the children's numbers in the order in which it took them. It waits for a signal before it
// returns, so that a worker can be replaced first: then the order is that of a replay.
func joinFunctions() (joiner, member *durable.Function[scaleInput, string]) {
	member = durable.NewFunction(scaleMemberName, func(ctx durable.Context, in scaleInput) (string, error) {
		result := scaleChildResult(in.ID, in.N)
		if in.AtMs == 0 {
			return result, nil
		}
		left, err := durable.Run(ctx, "left", func(context.Context) (time.Duration, error) {
			return max(time.Millisecond, time.Until(time.UnixMilli(in.AtMs))), nil
		})
		if err != nil {
			return "", err
		}
		return result, durable.Sleep(ctx, left)
	})
	joiner = durable.NewFunction(scaleJoinerName, func(ctx durable.Context, in scaleInput) (string, error) {
		set, err := durable.NewJoinSet[string](ctx)
		if err != nil {
			return "", err
		}
		for n := range in.N {
			of := scaleInput{ID: in.ID, N: n, AtMs: in.AtMs}
			if in.SpreadMs > 0 {
				of.AtMs += int64(n) * 7919 % int64(in.N) * in.SpreadMs / int64(in.N)
			}
			f, err := durable.Go(ctx, member, of)
			if err != nil {
				return "", err
			}
			if err := set.Submit(ctx, f); err != nil {
				return "", err
			}
		}
		var words []string
		for set.Len() > 0 {
			f, err := set.Next(ctx)
			if err != nil {
				return "", err
			}
			word, err := f.Get(ctx)
			if err != nil {
				return "", err
			}
			words = append(words, word)
		}
		_, err = durable.WaitSignal[string](ctx, scaleSignal)
		return scaleDigest(words), err
	})
	return joiner, member
}

// joinSet runs one execution that joins many children by a join set, and has other workers replay it before its end.
func (r *scaleRun) joinSet(ctx context.Context, memory *memorySeries) error {
	id := fmt.Sprintf("scale-%x-joinset", r.o.Seed)
	in := scaleInput{ID: id, N: r.o.N}
	if r.o.AtOnce {
		in.AtMs, in.SpreadMs = r.began.Add(r.o.Lead).UnixMilli(), r.o.Spread.Milliseconds()
	}
	h, err := r.fn.joiner.Start(ctx, r.cl, id, in)
	if err != nil {
		return err
	}
	joining, cancel := context.WithTimeout(ctx, r.o.Bound)
	defer cancel()
	shown := time.Now()
	for {
		e, err := r.cl.Describe(joining, id)
		if err != nil {
			r.violate("%s did not join within %s", id, r.o.Bound)
			return err
		}
		if e.GetWaiting().GetSignalName() == scaleSignal {
			break
		}
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			fmt.Fprintf(r.o.Out, "%s: %d events in the journal, waits for %s; memory%s\n", short3(time.Since(r.began)), e.GetJournalEvents(), e.GetWakeSource(), memory.now())
		}
		_ = pause(joining, 100*time.Millisecond)
	}
	r.note("joined after %s", short3(time.Since(r.began)))
	for _, w := range r.c.workers {
		if err := w.Kill(); err != nil {
			return err
		}
		if err := w.Start(); err != nil {
			return err
		}
	}
	if err := r.cl.Signal(ctx, id, scaleSignal, []byte(`"go"`)); err != nil {
		return err
	}
	result, entries, err := r.result(ctx, h, memory)
	if err != nil {
		return err
	}
	course := JoinCourseOf(entries)
	from := max(r.began.UnixMilli(), in.AtMs)
	r.paceFrom("members completed", from, course.CompletedMs)
	r.paceFrom("members taken", from, course.TakenMs)
	r.note("%d waits, naming at most %d members; %d commits of the function for %d members, %.2f for each", course.Waits, course.Named,
		course.Commits, r.o.N, float64(course.Commits)/float64(r.o.N))
	r.report.Violations = append(r.report.Violations, CheckScaleJoinSet(id, r.o.N, course, result)...)
	return nil
}

// JoinCourse is what the journal of a function that joins children says.
type JoinCourse struct {
	// Scheduled are the children in the order of their start, Completed in that of their ends, Taken in that
	// in which the function took their results.
	Scheduled, Completed, Taken []string
	// Results are the completed children's, Consumed the ones that were taken.
	Results, Consumed map[string]string
	CompletedMs       []int64
	TakenMs           []int64
	// Waits are the waits recorded, Named the most members that one of them names.
	Waits, Named int
	// Commits are the fewest commits in which the function can have written its entries.
	Commits int
}

// JoinCourseOf reads a journal.
func JoinCourseOf(entries []*perdurev1.JournalEntry) JoinCourse {
	c := JoinCourse{Results: map[string]string{}, Consumed: map[string]string{}}
	text := func(o *perdurev1.Outcome) (out string) {
		if json.Unmarshal(o.GetValue(), &out) != nil {
			return o.String()
		}
		return out
	}
	own := 0
	for _, e := range entries {
		switch k := e.GetEvent().GetKind().(type) {
		case *perdurev1.Event_InvokeStarted:
			continue // the server's, of a child of the same commit
		case *perdurev1.Event_InvokeScheduled:
			c.Scheduled = append(c.Scheduled, k.InvokeScheduled.GetPromiseId())
		case *perdurev1.Event_JoinSetAwaited:
			p := k.JoinSetAwaited.GetPromiseId()
			c.Taken, c.TakenMs = append(c.Taken, p), append(c.TakenMs, e.GetTimeMs())
			c.Consumed[p] = text(k.JoinSetAwaited.GetResult())
		case *perdurev1.Event_ExecutionAwaiting:
			c.Waits++
			c.Named = max(c.Named, len(k.ExecutionAwaiting.GetWaitingOn()))
		case *perdurev1.Event_InvokeCompleted:
			p := k.InvokeCompleted.GetPromiseId()
			c.Completed, c.CompletedMs = append(c.Completed, p), append(c.CompletedMs, e.GetTimeMs())
			c.Results[p] = text(k.InvokeCompleted.GetResult())
			own = 0
			continue
		case *perdurev1.Event_ExecutionResumed, *perdurev1.Event_SignalDelivered, *perdurev1.Event_SignalReceived:
			own = 0
			continue
		}
		if own%maxCommitEvents == 0 {
			c.Commits++
		}
		own++
	}
	return c
}

// maxCommitEvents is after how many events a worker commits by itself.
const maxCommitEvents = 257

// CheckScaleJoinSet reports members that were lost, doubled or taken out of order: a function takes the results in the
// order in which they came, and returns the digest of that order.
func CheckScaleJoinSet(parent string, n int, c JoinCourse, result string) []string {
	var f findings
	if len(c.Scheduled) != n || len(c.Completed) != n || len(c.Taken) != n {
		f.add("%d members were started, %d completed, %d taken, each has to be %d", len(c.Scheduled), len(c.Completed), len(c.Taken), n)
	}
	if !slices.Equal(c.Completed, c.Taken) {
		f.add("the members were not taken in the order in which they completed")
	}
	for i, p := range c.Scheduled {
		if want := scaleChildResult(parent, i); c.Results[p] != want || c.Consumed[p] != want {
			f.add("%s has the result %q, and %q was taken, not %q", p, c.Results[p], c.Consumed[p], want)
		}
	}
	var words []string
	for _, p := range c.Taken {
		words = append(words, c.Consumed[p])
	}
	if want := scaleDigest(words); result != want {
		f.add("the replayed function returned %q, its journal makes %q", result, want)
	}
	return f.list()
}

// maxSlowdown is by how much a step of a long function may take longer than one at its beginning.
const maxSlowdown = 1.5

// checkLatency notes how long a step takes in each tenth of a function, by the times at which the steps completed, and
// finds a violation in growth.
func (r *scaleRun) checkLatency(at []int64) {
	tenths, ratio := stepLatencies(at)
	if tenths == nil {
		return
	}
	r.note("per step in ms, by tenths %.2f; at the end %.2f times as long as at the beginning", tenths, ratio)
	if ratio > maxSlowdown {
		r.violate("a step takes %.2f times as long at the end as at the beginning, at most %.1f is allowed", ratio, maxSlowdown)
	}
}

// stepLatencies is how long a step took on average in each tenth, in milliseconds, and the last tenth as a
// multiple of the quicker of the first two. tenths is nil for fewer than 1,000 steps.
func stepLatencies(at []int64) (tenths []float64, ratio float64) {
	n := len(at)
	if n < 1000 {
		return nil, 0
	}
	for i := range 10 {
		from, to := i*(n-1)/10, (i+1)*(n-1)/10
		tenths = append(tenths, float64(at[to]-at[from])/float64(to-from))
	}
	return tenths, tenths[9] / max(min(tenths[0], tenths[1]), 0.001)
}
