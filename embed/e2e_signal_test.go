package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/durable"
)

// deliveryOf is the result of a signal, as its sender got it.
func deliveryOf(err error) string {
	switch {
	case err == nil:
		return "delivered"
	case errors.Is(err, durable.ErrTargetNotFound):
		return "not found"
	case errors.Is(err, durable.ErrTargetFinished):
		return "finished"
	}
	return err.Error()
}

// TestSignalsToNobody: in a cluster of three nodes with four partitions, an execution learns which of its
// signals found their targets, in any partition. It learns the same when it is replayed after all nodes were
// restarted. The journal of an execution that does not ask has the outcome too.
func TestSignalsToNobody(t *testing.T) {
	t.Parallel() // it waits most of the time
	cfgs := memberConfigs(t)
	nodes := startAll(t, cfgs...)
	w := connect(t, cfgs[0].GRPCAddr)

	until(t, "the newest feature level", func() error {
		s, err := w.ClusterStatus(soon(t))
		for _, p := range s.GetPartitions() {
			if p.GetFeatureLevel() == 0 || p.GetFeatureLevel() < s.GetNodes()[0].GetFeatureLevel() {
				return fmt.Errorf("partition %d is at level %d", p.GetPartition(), p.GetFeatureLevel())
			}
		}
		return err
	})

	const each = 8 // of four partitions: some live with the sender, most do not
	targets := map[string]string{}
	var ids []string
	add := func(id, want string) { targets[id], ids = want, append(ids, id) }
	open := durable.NewFunction("open", func(ctx durable.Context, _ int) (string, error) {
		return durable.WaitSignal[string](ctx, "hello")
	})
	over := durable.NewFunction("over", func(durable.Context, int) (int, error) { return 0, nil })
	sender := durable.NewFunction("sender", func(ctx durable.Context, to []string) ([]string, error) {
		var sent []*durable.Future[struct{}]
		for _, id := range to {
			f, err := durable.GoSignal(ctx, id, "hello", "world")
			if err != nil {
				return nil, err
			}
			sent = append(sent, f)
		}
		var out []string
		for _, f := range sent {
			_, err := f.Get(ctx)
			out = append(out, deliveryOf(err))
		}
		if _, err := durable.WaitSignal[string](ctx, "again"); err != nil {
			return nil, err
		}
		for i, f := range sent {
			if _, err := f.Get(ctx); deliveryOf(err) != out[i] {
				return nil, fmt.Errorf("the signal to %s was %q, and is %q", to[i], out[i], deliveryOf(err))
			}
		}
		return out, nil
	})
	oneWay := durable.NewFunction("one-way", func(ctx durable.Context, to []string) (int, error) {
		for _, id := range to {
			if err := durable.Signal(ctx, id, "hello", "world"); err != nil {
				return 0, err
			}
		}
		_, err := durable.WaitSignal[string](ctx, "again")
		return 0, err
	})
	x := w.workAt(cfgs[1].GRPCAddr, durable.WorkerOptions{}, open, over, sender, oneWay)
	var opened []*durable.Handle[string]
	for i := range each {
		add(fmt.Sprint("missing-", i), "not found")
		add(fmt.Sprint("over-", i), "finished")
		add(fmt.Sprint("open-", i), "delivered")
		begin(w, over, fmt.Sprint("over-", i), 0)
		opened = append(opened, begin(w, open, fmt.Sprint("open-", i), 0))
	}
	for i := range each {
		w.reaches(fmt.Sprint("over-", i), perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED)
	}
	asks := begin(w, sender, "asks", ids)
	w.waitsFor("asks", "again") // its signals come first: they may end their targets
	begin(w, oneWay, "tells", ids)
	want := map[string]int{"": each, durable.TypeTargetNotFound: each, durable.TypeTargetFinished: each}
	until(t, "the answers to signals that are not awaited", func() error {
		have := map[string]int{}
		for e, err := range w.Journal(context.Background(), "tells") {
			if err != nil {
				return err
			}
			if done := e.GetEvent().GetInvokeCompleted(); done != nil {
				have[done.GetResult().GetFailure().GetType()]++
			}
		}
		// Of those that were open the first of the two signals may have ended them.
		if n := have[""] + have[durable.TypeTargetFinished]; have[durable.TypeTargetNotFound] != each || n != 2*each {
			return fmt.Errorf("the journal has %v, must have %v", have, want)
		}
		return nil
	})
	for i := range each { // too late: the sender's outcome does not change
		begin(w, over, fmt.Sprint("missing-", i), 0)
	}
	for _, n := range nodes {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	startAll(t, cfgs...)
	w.signal("asks", "again", `"please"`)
	got := result(t, asks)
	for i, id := range ids {
		if i >= len(got) || got[i] != targets[id] {
			t.Errorf("the signal to %s: the execution learned %q, must learn %q", id, slices.Concat(got, []string{""})[min(i, len(got))], targets[id])
		}
	}
	for _, h := range opened {
		if got := result(t, h); got != "world" {
			t.Errorf("an open target got %q", got)
		}
	}
	w.validJournal("asks")
	w.validJournal("tells")
	x.noProblems()
}
