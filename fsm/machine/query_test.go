package machine

import (
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// population starts n executions, several in one millisecond, and brings them into every status.
func population(w *world, n int) {
	w.unaudited = true
	rng := rand.New(rand.NewSource(int64(n)))
	for i := range n {
		objectID := fmt.Sprintf("%c-%03d", "abc"[rng.Intn(3)], i)
		w.do(startCmd(w.request(), objectID, []string{"f", "g"}[rng.Intn(2)], ""))
		w.now += int64(rng.Intn(2))
		p := w.at(objectID)
		got := w.takeFrom(p, grant("w", 1, "f", "g"))
		if len(got) != 1 {
			continue
		}
		switch v := got[0]; rng.Intn(7) {
		case 0:
			w.commit(v, "return r")
		case 1:
			w.commit(v, "fail app:no")
		case 2:
			w.do(terminateCmd(v.token.Id, ""))
		case 3:
			w.commit(v, "wait s")
		case 4:
			w.do(cancelCmd(v.token.Id, "", 0))
		}
	}
}

func (w *world) list(p *part, req *perdurev1.ListRequest, budget int) *perdurev1.ListResponse {
	w.t.Helper()
	x := &query.Read{Must: state.Must{From: p.state}, ClockMS: w.now, Query: &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: req}}, ListBudget: budget}
	reply, err := x.Answer()
	if err != nil || wire.QueryError(reply) != nil {
		w.t.Fatalf("list: %v, %v", reply, err)
	}
	return reply.GetList()
}

// Paging shows what there is, once each, in order, however small the pages and whatever the filters;
// also when a page stops early because it has looked at too much.
func TestListPages(t *testing.T) {
	w := newWorld(t, 1)
	population(w, 120)
	p := w.parts[0]
	everything := w.list(p, &perdurev1.ListRequest{Limit: 1000}, query.ListBudget).Executions
	if len(everything) != 120 || !slices.IsSortedFunc(everything, query.CompareListed) {
		t.Fatalf("%d executions, sorted: %v", len(everything), slices.IsSortedFunc(everything, query.CompareListed))
	}
	seen := map[perdurev1.ExecutionStatus]int{}
	for _, e := range everything {
		seen[e.Status]++
		if d := w.describe(e.Id); d.Status != e.Status || d.CreatedMs != e.CreatedMs || d.ClosedMs != e.ClosedMs || d.Function != e.Function {
			t.Errorf("listed as %v, described as %v", e, d)
		}
	}
	if len(seen) != 6 {
		t.Fatalf("only %v", seen)
	}
	statuses := [][]perdurev1.ExecutionStatus{nil, {2}, {1, 3}, {4}, {4, 5, 6}, {6, 6, 1}}
	for _, status := range statuses {
		for _, function := range []string{"", "f", "none"} {
			for _, prefix := range []string{"", "b-", "b-1", "zz"} {
				var want []string
				for _, e := range everything {
					if (status == nil || slices.Contains(status, e.Status)) && (function == "" || e.Function == function) && strings.HasPrefix(e.Id, prefix) {
						want = append(want, e.Id)
					}
				}
				for _, limit := range []uint32{1, 7, 0} {
					for _, budget := range []int{1, 10, query.ListBudget} {
						req := &perdurev1.ListRequest{Status: status, Function: function, IdPrefix: prefix, Limit: limit}
						var got []string
						for pages := 0; ; pages++ {
							page := w.list(p, req, budget)
							for _, e := range page.Executions {
								got = append(got, e.Id)
							}
							if limit != 0 && len(page.Executions) > int(limit) || pages > 1000 {
								t.Fatalf("a page of %d, page %d", len(page.Executions), pages)
							}
							if len(page.Cursor) == 0 {
								break
							}
							req.Cursor = page.Cursor
						}
						if !slices.Equal(got, want) {
							t.Fatalf("status %v, function %q, prefix %q, limit %d, budget %d:\n%v, must be\n%v", status, function, prefix, limit, budget, got, want)
						}
					}
				}
			}
		}
	}
}

// An execution that ends between two pages is listed once.
func TestListWhileTheyEnd(t *testing.T) {
	w := newWorld(t, 1)
	population(w, 60)
	rng := rand.New(rand.NewSource(1))
	req := &perdurev1.ListRequest{Limit: 3}
	var got []string
	for {
		page := w.list(w.parts[0], req, 5)
		for _, e := range page.Executions {
			got = append(got, e.Id)
		}
		if len(page.Cursor) == 0 {
			break
		}
		req.Cursor = page.Cursor
		all := w.list(w.parts[0], &perdurev1.ListRequest{Limit: 1000}, query.ListBudget).Executions
		w.do(terminateCmd(all[rng.Intn(len(all))].Id, ""))
	}
	slices.Sort(got)
	if compact := slices.Compact(slices.Clone(got)); len(got) != 60 || len(compact) != 60 {
		t.Errorf("%d shown, %d different", len(got), len(compact))
	}
}

// A cursor that is damaged is refused; an empty one is the beginning.
func TestDamagedCursor(t *testing.T) {
	w := newWorld(t, 1)
	for _, bad := range [][]byte{{}, {1}, {2, 9, 'x'}, {2, 1, 'x', 'y'}, []byte("nonsense that is no cursor")} {
		_, err := query.DecodeListPosition(bad)
		reply := w.query(&commandv1.Query{Kind: &commandv1.Query_List{List: &perdurev1.ListRequest{Cursor: bad}}})
		if e := wire.QueryError(reply); err == nil || (len(bad) > 0) != (e != nil) || e != nil && e.Reason != perdurev1.Reason_REASON_BAD_REQUEST {
			t.Errorf("%q: %v, %v", bad, err, reply)
		}
	}
}

// A journal is read in pages, by number and by size.
func TestJournalPages(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited = true
	v := w.begin("e", "f")
	big := strings.Repeat("x", 300<<10)
	for range 8 {
		w.commit(v, "step s -> "+big)
	}
	total := 0
	for from := uint64(0); ; {
		reply := w.query(&commandv1.Query{Id: "e", Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{FromSeq: from}}}).GetJournal()
		size := 0
		for i, e := range reply.Entries {
			if e.Seq != from+uint64(i) {
				t.Fatalf("entry %d at %d", e.Seq, from)
			}
			size += len(e.Event.GetInvokeCompleted().GetResult().GetValue())
		}
		if size > query.PageBytes || len(reply.Entries) == 0 {
			t.Fatalf("a page of %d bytes, %d entries from %d", size, len(reply.Entries), from)
		}
		total++
		if from += uint64(len(reply.Entries)); from == reply.NextSeq {
			break
		}
	}
	if total != 3 {
		t.Errorf("%d pages", total)
	}
	if reply := w.query(&commandv1.Query{Id: "e", Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{FromSeq: 1 << 60}}}).GetJournal(); len(reply.Entries) != 0 || reply.NextSeq != 25 {
		t.Errorf("beyond the end: %v", reply)
	}
	// A task's first page is its journal's.
	task := w.query(&commandv1.Query{Id: "e", Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: 1, Version: 1}}}).GetTask()
	if task.NextSeq != 25 || len(task.Entries) == 0 || len(task.Entries) == 25 || task.Function != "f" {
		t.Errorf("a task of %d entries of %d", len(task.Entries), task.NextSeq)
	}
}

// A wait is found however far back it lies.
func TestDescribeWaiting(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited = true
	v := w.begin("e", "f")
	w.commit(v, "child g; child g; all 0,1")
	for i := range 200 {
		w.do(signalCmd(nil, "e", "s", fmt.Sprint(i)))
	}
	got := w.describe("e")
	if strings.Join(got.Waiting.GetWaitingOn(), " ") != "e:0 e:1" || got.WakeSource != "child e:0" {
		t.Errorf("it is %v", got)
	}
	child := w.take("w2", 2, "g")
	w.commit(child[0], "return x")
	if got := w.describe("e"); got.WakeSource != "child e:1" {
		t.Errorf("it is %v", got)
	}
}

// The wake source of an execution in each of its states.
func TestWakeSources(t *testing.T) {
	for _, c := range []struct {
		ops, want string
		later     int64
	}{
		{"", "worker w1", 0},
		{"", "worker w1", 50_000}, // its lease has ended, before any expiration ran
		{"sleep 5000; await 0", "timer e:0", 0},
		{"sleep 5000; await 0", "timer e:0", 5000},
		{"child g; await 0", "child e:0", 0},
		{"child g timeout=50; await 0", "child e:0", 50},
		{"child g spread; await 0", "child e:0, execution 99b1acb55019da1b5194fe6c1011b43385d960e796dbf67891c2fcaf623c5571", 0},
		{"child g id=mine; await 0", "child e:0, execution mine", 0},
		{"wait s", "signal s", 0},
		{"wait s timeout=50", "signal s", 60},
		{"child g; sleep 50; any 0,1", "child e:0", 0},
		{"child g; sleep 50; all 0,1", "child e:0", 60},
		{"return x", "finished", 0},
	} {
		w := newWorld(t, 2)
		v := w.begin("e", "f")
		if c.ops != "" {
			w.commit(v, c.ops)
		}
		w.now += c.later
		if got := w.describe("e").WakeSource; got != c.want {
			t.Errorf("%q, %d ms later: %s, must be %s", c.ops, c.later, got, c.want)
		}
	}
}

// A read shows a deadline as passed once an entry has brought the machine's clock to it, before any tick; and not
// earlier: whatever a node's clock says, a later entry may still settle what is pending in the state.
func TestReadsAreProjected(t *testing.T) {
	w := newWorld(t, 1)
	start := startCmd(w.request(), "e", "f", "")
	start.GetStart().TimeoutMs = 1000
	w.do(start)
	result := func() *perdurev1.ResultResponse {
		return w.query(&commandv1.Query{Id: "e", Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}}).GetResult()
	}
	if got := result(); got.Done || got.Outcome != nil {
		t.Errorf("%v", got)
	}
	w.now += 1000
	if got := result(); got.Done || got.Outcome != nil {
		t.Errorf("done at a time that no entry has carried: %v", got)
	}
	w.do(createPromiseCmd("other", 1)) // touches nothing of e
	if got := result(); !got.Done || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED || got.Outcome.GetFailure().GetType() != state.FailureTimeout {
		t.Errorf("%v", got)
	}
	w.tick()
	if got := result(); !got.Done || got.Outcome.GetFailure().GetType() != state.FailureTimeout {
		t.Errorf("%v", got)
	}
	for _, q := range []*commandv1.Query{
		{Id: "none", Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}},
		{Id: "none", Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}},
		{Id: "none", Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{}}},
	} {
		if e := wire.QueryError(w.query(q)); e == nil || e.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
			t.Errorf("%v: %v", q, e)
		}
	}
	if e := wire.QueryError(w.query(&commandv1.Query{})); e == nil || e.Reason != perdurev1.Reason_REASON_BAD_REQUEST {
		t.Errorf("a query of no kind: %v", e)
	}
}

// Describing an execution with large signals behind its wait brings none of them into memory.
func TestDescribeReadsNoSignals(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	w.commit(w.begin("e", "f"), "child g; await 0")
	const size = 4<<20 - 100
	for range 20 {
		w.do(signalCmd(nil, "e", "s", strings.Repeat("x", size)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := w.describe("e")
	runtime.ReadMemStats(&after)
	if got.GetWaiting().GetWaitingOn()[0] != "e:0" {
		t.Errorf("it waits for %v", got.GetWaiting())
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > size {
		t.Errorf("%d bytes were allocated to describe it", n)
	}
}
