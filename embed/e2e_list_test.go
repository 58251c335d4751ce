package embed_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// TestList fills all partitions and reads the listing in pages, with every filter.
func TestList(t *testing.T) {
	t.Parallel()
	executions := 3000
	if testing.Short() {
		executions = 450
	}
	cfg := nodeConfig(t.TempDir())
	cfg.CheckInvariants = false // other tests check them; here the numbers matter
	n := startNode(t, cfg)
	w := connect(t, n.GRPCAddr())
	good := durable.NewFunction("good", func(ctx durable.Context, in int) (int, error) { return in, nil })
	bad := durable.NewFunction("bad", func(ctx durable.Context, in int) (int, error) {
		return 0, &durable.Error{Type: "bad", Message: "always"}
	})
	x := w.work(durable.WorkerOptions{Concurrency: 128}, good, bad)

	// Of three in turn one completes, one fails, and one has no worker.
	functions := []string{"good", "bad", "unserved"}
	statuses := []client.Status{completed, failed, running_}
	name := func(i int) string { return fmt.Sprintf("%c-%04d", "xyz"[i/3%3], i) }
	var next atomic.Int64
	var wg sync.WaitGroup
	ctx := soon(t)
	for range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := int(next.Add(1)) - 1; i < executions; i = int(next.Add(1)) - 1 {
				if _, err := w.Start(ctx, client.StartOptions{ID: name(i), Function: functions[i%3], Input: []byte("1"), AllowUnknownFunction: true}); err != nil {
					t.Errorf("start %d: %v", i, err)
				}
			}
		}()
	}
	wg.Wait()
	until(t, "everything to end", func() error {
		for e, err := range w.List(ctx, client.ListOptions{Function: "good", Status: []client.Status{running_}, Limit: 1}) {
			return fmt.Errorf("%v, %v", e, err)
		}
		for e, err := range w.List(ctx, client.ListOptions{Function: "bad", Status: []client.Status{running_}, Limit: 1}) {
			return fmt.Errorf("%v, %v", e, err)
		}
		return nil
	})

	all := map[string]*perdurev1.ExecutionSummary{}
	partitions := map[uint32]int{}
	for i := range executions {
		if i%10 == 0 {
			partitions[w.describe(name(i)).GetPartition()]++
		}
	}
	if len(partitions) != 4 {
		t.Errorf("executions are in the partitions %v, want all 4", partitions)
	}
	for _, c := range []struct {
		name string
		o    client.ListOptions
		want func(i int) bool
	}{
		{"all", client.ListOptions{PageSize: 100}, func(int) bool { return true }},
		{"default pages", client.ListOptions{}, func(int) bool { return true }},
		{"big pages", client.ListOptions{PageSize: 1000}, func(int) bool { return true }},
		{"small pages of what failed", client.ListOptions{PageSize: 7, Status: []client.Status{failed}}, func(i int) bool { return i%3 == 1 }},
		{"stale", client.ListOptions{PageSize: 100, Stale: true}, func(int) bool { return true }},
		{"status", client.ListOptions{PageSize: 100, Status: []client.Status{completed}}, func(i int) bool { return i%3 == 0 }},
		{"two statuses", client.ListOptions{PageSize: 100, Status: []client.Status{failed, running_}}, func(i int) bool { return i%3 != 0 }},
		{"no such status", client.ListOptions{PageSize: 100, Status: []client.Status{cancelled, blocked}}, func(int) bool { return false }},
		{"function", client.ListOptions{PageSize: 100, Function: "unserved"}, func(i int) bool { return i%3 == 2 }},
		{"no such function", client.ListOptions{PageSize: 100, Function: "nobod"}, func(int) bool { return false }},
		{"prefix", client.ListOptions{PageSize: 100, IDPrefix: "x-"}, func(i int) bool { return i/3%3 == 0 }},
		{"narrow prefix", client.ListOptions{PageSize: 100, IDPrefix: "x-000"}, func(i int) bool { return i/3%3 == 0 && i < 10 }},
		{"all filters", client.ListOptions{PageSize: 100, IDPrefix: "y-", Function: "bad", Status: []client.Status{failed}},
			func(i int) bool { return i/3%3 == 1 && i%3 == 1 }},
	} {
		got := w.list(c.o)
		seen := map[string]bool{}
		for _, e := range got {
			if seen[e.GetId()] {
				t.Errorf("%s: %s is listed twice", c.name, e.GetId())
			}
			seen[e.GetId()] = true
			if known := all[e.GetId()]; known != nil && !proto.Equal(known, e) {
				t.Errorf("%s: %v was %v", c.name, e, known)
			}
			all[e.GetId()] = e
		}
		wanted := 0
		for i := range executions {
			if !c.want(i) {
				continue
			}
			wanted++
			e := all[name(i)]
			if !seen[name(i)] {
				t.Errorf("%s: %s is missing", c.name, name(i))
			} else if e.GetStatus() != statuses[i%3] || e.GetFunction() != functions[i%3] || (e.GetClosedMs() != 0) != (i%3 != 2) {
				t.Errorf("%s: %v", c.name, e)
			}
		}
		if len(got) != wanted {
			t.Errorf("%s: %d are listed, want %d", c.name, len(got), wanted)
		}
		if !slices.IsSortedFunc(got, func(a, b *perdurev1.ExecutionSummary) int {
			if a.GetCreatedMs() != b.GetCreatedMs() {
				return int(b.GetCreatedMs() - a.GetCreatedMs())
			}
			return strings.Compare(a.GetId(), b.GetId())
		}) {
			t.Errorf("%s: not newest first", c.name)
		}
	}
	if got := w.list(client.ListOptions{Limit: 42}); len(got) != 42 {
		t.Errorf("a limit of 42 lists %d", len(got))
	}
	x.stop()
}

// TestListWhileItGrows reads pages while new executions are started: every earlier execution is still listed
// exactly once.
func TestListWhileItGrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	put := func(id string) {
		t.Helper()
		if _, err := w.Start(soon(t), client.StartOptions{ID: id, Function: "unserved", AllowUnknownFunction: true}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		put(fmt.Sprintf("old-%d", i))
	}
	seen := map[string]int{}
	n := 0
	for e, err := range w.List(soon(t), client.ListOptions{PageSize: 7}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[e.GetId()]++
		put(fmt.Sprintf("new-%d", n))
		n++
	}
	for i := range 40 {
		if id := fmt.Sprintf("old-%d", i); seen[id] != 1 {
			t.Errorf("%s is listed %d times", id, seen[id])
		}
	}
}

// TestLongJournal fills more than one page of a journal and has a worker replay it after a restart.
func TestLongJournal(t *testing.T) {
	t.Parallel()
	steps := 500
	if testing.Short() {
		steps = 340
	}
	cfg := nodeConfig(t.TempDir())
	cfg.GRPCAddr = fixedAddr(t)
	n := startNode(t, cfg)
	w := connect(t, cfg.GRPCAddr)
	var runs atomic.Int64
	long := durable.NewFunction("long", func(ctx durable.Context, in int) (int, error) {
		sum := 0
		for i := range steps {
			v, err := durable.Run(ctx, fmt.Sprintf("step %d", i), func(context.Context) (int, error) {
				runs.Add(1)
				return i, nil
			})
			if err != nil {
				return 0, err
			}
			sum += v
		}
		more, err := durable.WaitSignal[int](ctx, "more")
		return sum + more, err
	})
	x := w.work(durable.WorkerOptions{}, long)
	h := begin(w, long, "long", 0)
	w.waitsFor("long", "more")
	entries := w.journal("long")
	if len(entries) != 1+3*steps+1 || len(entries) <= 1000 {
		t.Fatalf("the journal has %d entries, want %d: more than a page", len(entries), 1+3*steps+1)
	}
	for i, e := range entries {
		if e.GetSeq() != uint64(i) {
			t.Fatalf("entry %d has the number %d", i, e.GetSeq())
		}
	}
	x.stop()
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	startNode(t, cfg)
	y := w.work(durable.WorkerOptions{}, long) // knows nothing but what it reads
	w.signal("long", "more", "1000000")
	if got, want := result(t, h), steps*(steps-1)/2+1000000; got != want {
		t.Errorf("the result is %d, want %d", got, want)
	}
	if n := runs.Load(); n != int64(steps) {
		t.Errorf("%d steps ran %d times", steps, n)
	}
	w.validJournal("long")
	after := w.journal("long")
	for i, e := range entries {
		if !proto.Equal(e, after[i]) {
			t.Errorf("entry %d was %v and is %v", i, e, after[i])
		}
	}
	// Any part of it can be read.
	for _, from := range []uint64{0, 1, 999, 1000, uint64(len(after)) - 1, uint64(len(after)), 1 << 40} {
		at := from
		for e, err := range w.Journal(soon(t), "long", client.FromSeq(from)) {
			if err != nil || e.GetSeq() != at {
				t.Fatalf("from %d: %v, %v; want entry %d", from, e, err, at)
			}
			at++
		}
		if want := max(from, uint64(len(after))); at != want {
			t.Errorf("from %d the journal ends at %d, want %d", from, at, want)
		}
	}
	y.noProblems()
	y.stop()
}
