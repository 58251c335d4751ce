package resonate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
)

// faulty is a sandbox whose answers a test loses.
type faulty struct {
	*Sandbox
	mu sync.Mutex
	// refuse, unless nil, refuses the n-th proposal before it is applied; lose loses its answer, reading the n-th read's.
	refuse, lose, reading func(n int) error
	proposed, read        int
	requests              []*perdurev1.RequestID
}

func (f *faulty) Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	f.mu.Lock()
	n := f.proposed
	f.proposed++
	f.requests = append(f.requests, cmd.Request)
	f.mu.Unlock()
	if err := call(f.refuse, n); err != nil {
		return nil, err
	}
	reply, err := f.Sandbox.Propose(ctx, cmd)
	if lost := call(f.lose, n); lost != nil {
		return nil, lost
	}
	return reply, err
}

func (f *faulty) Read(ctx context.Context, p uint32, level group.Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	f.mu.Lock()
	n := f.read
	f.read++
	f.mu.Unlock()
	if err := call(f.reading, n); err != nil {
		return nil, 0, err
	}
	return f.Sandbox.Read(ctx, p, level, q)
}

func call(fault func(int) error, n int) error {
	if fault == nil {
		return nil
	}
	return fault(n)
}

// reason is an error that a partition answers.
func reason(r perdurev1.Reason) error { return api.Errorf(r, "planted") }

// first fails the first n attempts.
func first(n int, err error) func(int) error {
	return func(i int) error {
		if i < n {
			return err
		}
		return nil
	}
}

func newFaulty(t *testing.T) (*faulty, Store) {
	f := &faulty{Sandbox: newSandbox(t, false)}
	return f, &leaders{router: f, namespace: "ns", now: f.time}
}

var wf = NewPromise{ID: "wf", TimeoutAt: 90_000, Target: "poll://any@g", Tags: map[string]string{tagTarget: "poll://any@g"}}

// An acquire whose answer was lost is answered by what it did, however often it is sent; one that another request has done
// is a conflict.
func TestFirstAnswerHolds(t *testing.T) {
	f, s := newFaulty(t)
	ctx := context.Background()
	if _, err := s.CreatePromise(ctx, wf); err != nil {
		t.Fatal(err)
	}
	f.proposed, f.requests, f.lose = 0, nil, first(2, reason(perdurev1.Reason_REASON_OUTCOME_UNKNOWN))
	held, err := s.AcquireTask(ctx, TaskRef{ID: "wf"}, Lease{PID: "p", TTL: 1000})
	if err != nil || held.Task.State != "acquired" || held.Task.Version != 1 || held.Task.PID != "p" || held.Promise.ID != "wf" {
		t.Fatalf("acquired %+v, %v", held, err)
	}
	if len(f.requests) != 3 {
		t.Fatalf("%d attempts, want 3", len(f.requests))
	}
	for i, r := range f.requests {
		if len(r.GetId()) != 16 || string(r.Id) != string(f.requests[0].Id) || i > 0 && r.AgeMs == 0 {
			t.Errorf("attempt %d has the request id %v", i, r)
		}
	}
	again := f.requests[0].Id
	_, err = s.AcquireTask(ctx, TaskRef{ID: "wf"}, Lease{PID: "p", TTL: 1000})
	if r := refusalOf(err); r.Status != 409 {
		t.Errorf("another acquire: %v", err)
	}
	if string(f.requests[3].Id) == string(again) {
		t.Error("two operations have one request id")
	}
	// So are a suspend, a fence, a settlement and a fulfilment.
	f.proposed = 0
	if _, err := s.FenceCreate(ctx, TaskRef{ID: "wf", Version: 1}, NewPromise{ID: "wf:0", TimeoutAt: 9000, Tags: map[string]string{tagScope: "global"}}); err != nil {
		t.Error(err)
	}
	f.proposed = 0
	if got, err := s.SuspendTask(ctx, TaskRef{ID: "wf", Version: 1}, []string{"wf:0"}); err != nil || !got.Waiting {
		t.Errorf("suspended %v, %v", got, err)
	}
	f.proposed = 0
	if p, err := s.SettlePromise(ctx, Settlement{ID: "wf:0", State: "rejected"}); err != nil || p.State != "rejected" {
		t.Errorf("settled %v, %v", p, err)
	}
	f.proposed = 0
	if got, err := s.AcquireTask(ctx, TaskRef{ID: "wf", Version: 1}, Lease{PID: "q", TTL: 1000}); err != nil || got.Task.Version != 2 {
		t.Errorf("acquired again %v, %v", got, err)
	}
	f.proposed = 0
	if p, err := s.FulfillTask(ctx, TaskRef{ID: "wf", Version: 2}, Settlement{ID: "wf", State: "resolved"}); err != nil || p.State != "resolved" {
		t.Errorf("fulfilled %v, %v", p, err)
	}
}

// Attempts that were not applied are repeated; a refusal, and one of a node that stops, is the answer.
func TestRepeatedAttempts(t *testing.T) {
	for _, c := range []struct {
		reason   perdurev1.Reason
		attempts int
		status   int
	}{
		{perdurev1.Reason_REASON_TRY_LATER, 3, 200},
		{perdurev1.Reason_REASON_NOT_LEADER, 3, 200},
		{perdurev1.Reason_REASON_OUTCOME_UNKNOWN, 3, 200},
		{perdurev1.Reason_REASON_SHUTTING_DOWN, 1, 503},
		{perdurev1.Reason_REASON_QUOTA_EXCEEDED, 1, 429},
		{perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, 1, 413},
		{perdurev1.Reason_REASON_FEATURE_LEVEL, 1, 501},
		{perdurev1.Reason_REASON_CORRUPT, 1, 503},
		{perdurev1.Reason_REASON_STALE_TASK, 1, 409},
		{perdurev1.Reason_REASON_BAD_REQUEST, 1, 400},
		{perdurev1.Reason_REASON_PROMISE_NOT_FOUND, 1, 404},
		{perdurev1.Reason_REASON_RULE_BROKEN, 1, 422},
	} {
		status := func(err error) int {
			if err != nil {
				return refusalOf(err).Status
			}
			return 200
		}
		f, s := newFaulty(t)
		f.refuse = first(2, reason(c.reason))
		if _, err := s.CreatePromise(context.Background(), wf); status(err) != c.status || f.proposed != c.attempts {
			t.Errorf("%v: %v after %d attempts, want %d after %d", c.reason, err, f.proposed, c.status, c.attempts)
		}
		f.refuse, f.reading = nil, first(2, reason(c.reason))
		if _, err := s.CreatePromise(context.Background(), wf); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Promise(context.Background(), "wf"); status(err) != c.status || f.read != c.attempts {
			t.Errorf("%v: read: %v after %d attempts, want %d after %d", c.reason, err, f.read, c.status, c.attempts)
		}
	}
}

// A caller that gives up ends the attempts: the answer is that the outcome is not known.
func TestGivenUp(t *testing.T) {
	f, s := newFaulty(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.lose = func(n int) error {
		if n == 2 {
			cancel()
		}
		return reason(perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
	}
	_, err := s.CreatePromise(ctx, wf)
	if r := refusalOf(err); r.Status != 503 || f.proposed != 3 {
		t.Errorf("%v after %d attempts", err, f.proposed)
	}
	if r := refusalOf(context.DeadlineExceeded); r.Status != 503 {
		t.Errorf("a deadline: %d", r.Status)
	}
	if r := refusalOf(errors.New("broken")); r.Status != 503 {
		t.Errorf("an error of no kind: %d", r.Status)
	}
}

// shelves are partitions that hold promises by id, and answer pages of at most page of them.
type shelves struct {
	partitions
	ids  [][]string
	page int
}

func (s shelves) Partitions() uint32 { return uint32(len(s.ids)) }
func (s shelves) Read(_ context.Context, p uint32, _ group.Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	req, out := q.GetPromises(), &perdurev1.SearchPromisesResponse{}
	looked := 0
	for _, id := range s.ids[p] {
		switch {
		case id <= req.Cursor:
			continue
		case looked == s.page || len(out.Promises) == int(req.Limit):
			return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Promises{Promises: out}}, 1, nil
		}
		looked++
		out.Cursor = id
		if !strings.HasSuffix(id, "x") { // what the search does not want
			out.Promises = append(out.Promises, &perdurev1.Promise{Id: id})
		}
	}
	out.Cursor = ""
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Promises{Promises: out}}, 1, nil
}

// A search finds what all partitions have, ascending by id, each once, whatever pages they answer.
func TestSearchMergesPartitions(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := shelves{ids: make([][]string, 1+random.IntN(4)), page: 1 + random.IntN(5)}
		var want []string
		for i := range random.IntN(30) {
			id := fmt.Sprintf("%03d%s", i, []string{"", "x"}[random.IntN(2)])
			p := random.IntN(len(s.ids))
			if s.ids[p] = append(s.ids[p], id); !strings.HasSuffix(id, "x") {
				want = append(want, id)
			}
		}
		store := &leaders{router: s, namespace: "ns"}
		req := Search{Limit: 1 + random.IntN(8)}
		var got []string
		for range 100 {
			page, cursor, err := store.SearchPromises(context.Background(), req)
			if err != nil || len(page) > req.Limit {
				t.Fatalf("seed %d: a page of %d, limit %d: %v", seed, len(page), req.Limit, err)
			}
			for _, p := range page {
				got = append(got, p.ID)
			}
			if req.After = cursor; cursor == "" {
				break
			}
		}
		if req.After != "" || !slices.Equal(got, want) {
			t.Fatalf("seed %d: found %q, want %q", seed, got, want)
		}
	}
}

// A page is not short because a partition had to look for it.
func TestSearchReadsOn(t *testing.T) {
	s := shelves{ids: [][]string{{"01x", "02x", "03x", "04x", "05"}, {"06x"}}, page: 1}
	page, cursor, err := (&leaders{router: s, namespace: "ns"}).SearchPromises(context.Background(), Search{Limit: 1})
	if err != nil || len(page) != 1 || page[0].ID != "05" {
		t.Errorf("found %v, %q, %v", page, cursor, err)
	}
}

// A search that one partition does not answer has no answer.
func TestSearchNeedsEveryPartition(t *testing.T) {
	f, s := newFaulty(t)
	f.reading = func(int) error { return reason(perdurev1.Reason_REASON_CORRUPT) }
	if _, _, err := s.SearchPromises(context.Background(), Search{Limit: 1}); err == nil {
		t.Error("a partition that does not answer has nothing")
	}
}

// Only the step's own promises are preloaded, for a task that another worker has had.
func TestPreload(t *testing.T) {
	_, s := newFaulty(t)
	ctx := context.Background()
	root := wf
	root.Tags = map[string]string{tagTarget: "poll://any@g", tagBranch: "wf"}
	held, err := s.CreateTask(ctx, root, Lease{PID: "p", TTL: 1000})
	if err != nil || held.Preload != nil {
		t.Fatalf("held %+v, %v", held, err)
	}
	for _, id := range []string{"wf:1", "wf:0", "wf:2", "wfx"} {
		tags := map[string]string{tagBranch: "wf"}
		if id == "wf:2" {
			tags[tagBranch] = id
		}
		if _, err := s.CreatePromise(ctx, NewPromise{ID: id, TimeoutAt: 9000, Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ReleaseTask(ctx, TaskRef{ID: "wf", Version: 1}); err != nil {
		t.Fatal(err)
	}
	held, err = s.AcquireTask(ctx, TaskRef{ID: "wf", Version: 1}, Lease{PID: "q", TTL: 1000})
	var got []string
	for _, p := range held.Preload {
		got = append(got, p.ID)
	}
	if err != nil || !slices.Equal(got, []string{"wf:0", "wf:1"}) {
		t.Errorf("preloaded %q, %v", got, err)
	}
}
