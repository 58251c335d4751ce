package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

var started = &perdurev1.StartResponse{Id: "x", Incarnation: 3, Created: true, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}

// One write has one request id over all its attempts, and every attempt carries its age.
func TestRetriesKeepTheRequestID(t *testing.T) {
	c := newCluster(t, "a", "b")
	clock := &fakeClock{now: time.Unix(1, 0)}
	c.answer = script(started,
		refusal(perdurev1.Reason_REASON_NOT_LEADER), refusal(perdurev1.Reason_REASON_TRY_LATER),
		refusal(perdurev1.Reason_REASON_OVERLOADED), refusal(perdurev1.Reason_REASON_SHUTTING_DOWN),
		refusal(perdurev1.Reason_REASON_OUTCOME_UNKNOWN), status.Error(codes.Unavailable, "broken"),
		status.Error(codes.Canceled, "the server ends calls"))
	cl := c.client(Options{Clock: clock, Rand: &counting{}})
	got, err := cl.Start(t.Context(), StartOptions{ID: "x", Function: "f"})
	if err != nil || got != (Started{ID: "x", Incarnation: 3, Created: true, Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}) {
		t.Fatal(got, err)
	}
	if len(c.requests) != 8 {
		t.Fatalf("%d attempts", len(c.requests))
	}
	age := uint64(0)
	for i, r := range c.requests {
		if len(r.GetId()) != 16 || string(r.GetId()) != string(c.requests[0].GetId()) {
			t.Errorf("attempt %d has request id %x, the first %x", i, r.GetId(), c.requests[0].GetId())
		}
		if (i == 0) != (r.GetAgeMs() == 0) || r.GetAgeMs() < age {
			t.Errorf("attempt %d is %d ms old, the one before %d", i, r.GetAgeMs(), age)
		}
		age = r.GetAgeMs()
		if want := string("ab"[i%2]); c.asked[i] != want {
			t.Errorf("attempt %d went to %s", i, c.asked[i])
		}
	}
	if age != uint64(clock.now.Sub(time.Unix(1, 0)).Milliseconds()) {
		t.Errorf("the last is %d ms old", age)
	}
	if err := cl.Signal(t.Context(), "x", "s", nil); err == nil {
		t.Error("the test answers a signal with a start")
	}
	if a, b := c.requests[0].GetId(), c.requests[8].GetId(); string(a) == string(b) {
		t.Error("two calls share a request id")
	}
}

// counting is a source of different bytes.
type counting struct{ n byte }

func (c *counting) Read(b []byte) (int, error) {
	for i := range b {
		c.n++
		b[i] = c.n
	}
	return len(b), nil
}

func TestBackoff(t *testing.T) {
	c := newCluster(t, "a")
	clock := &fakeClock{}
	var errs []error
	for range 8 {
		errs = append(errs, refusal(perdurev1.Reason_REASON_TRY_LATER))
	}
	c.answer = script(started, errs...)
	if _, err := c.client(Options{Clock: clock}).Start(t.Context(), StartOptions{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(clock.waits); got != "[25ms 50ms 100ms 200ms 400ms 800ms 1s 1s]" {
		t.Errorf("waited %s", got)
	}
	cl := &Client{opts: Options{Rand: ones{}}}
	if d := cl.jitter(time.Second); d < time.Second/2 || d > time.Second/2+time.Microsecond {
		t.Errorf("the shortest of a second is %v", d)
	}
}

// A node that says when to try again is asked no earlier, and later each time.
func TestRetryAfter(t *testing.T) {
	c := newCluster(t, "a")
	clock := &fakeClock{}
	full := func(ms int64) error {
		return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "planted").WithRetryAfterMS(ms)
	}
	c.answer = script(started, full(300), full(300), full(300), full(300), full(300), full(300), refusal(perdurev1.Reason_REASON_TRY_LATER), full(300), full(40_000))
	cl := c.client(Options{Clock: clock, Timeout: time.Hour})
	if _, err := cl.Start(t.Context(), StartOptions{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(clock.waits); got != "[300ms 600ms 1.2s 2.4s 4.8s 5s 1s 300ms 40s]" {
		t.Errorf("waited %s", got)
	}
	cl.opts.Rand = ones{}
	if d := cl.overloaded(time.Second, 0); d <= time.Second+499*time.Millisecond || d > 1500*time.Millisecond {
		t.Errorf("the longest of a second is %v", d)
	}
}

// ones makes the greatest fraction.
type ones struct{}

func (ones) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 0xff
	}
	return len(b), nil
}

// A node that cannot be reached costs no pause while there is another.
func TestFailover(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	clock := &fakeClock{}
	c.answer = script(started)
	c.nodes["a"].lis.Close()
	c.nodes["b"].lis.Close()
	cl := c.client(Options{Clock: clock})
	for range 3 {
		if _, err := cl.Start(t.Context(), StartOptions{ID: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(c.asked, ""); got != "ccc" {
		t.Errorf("asked %s", got)
	}
	if len(clock.waits) != 0 {
		t.Errorf("waited %v", clock.waits)
	}
}

func TestRefusal(t *testing.T) {
	c := newCluster(t, "a")
	c.answer = script(nil, api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "taken").With("id", "x"))
	_, err := c.client(Options{}).Start(t.Context(), StartOptions{ID: "x"})
	var e *api.Error
	if !errors.As(err, &e) || e.Reason != perdurev1.Reason_REASON_ID_CONFLICT || e.Meta["id"] != "x" || Unavailable(err) {
		t.Errorf("%#v", err)
	}
	if len(c.asked) != 1 {
		t.Errorf("%d attempts", len(c.asked))
	}
	c.answer = script(nil, nil, status.Error(codes.Unimplemented, "old server"))
	if err := c.client(Options{}).Signal(t.Context(), "x", "s", nil); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

// A refusal after an attempt whose outcome is unknown is the answer only if it is the machine's.
func TestRefusedAfterUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		refusal error
		unknown bool
	}{
		"damaged":           {refusal(perdurev1.Reason_REASON_CORRUPT), true},
		"token":             {refusal(perdurev1.Reason_REASON_UNAUTHENTICATED), true},
		"role":              {refusal(perdurev1.Reason_REASON_PERMISSION_DENIED), true},
		"membership":        {refusal(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED), true},
		"level":             {refusal(perdurev1.Reason_REASON_FEATURE_LEVEL), true},
		"node":              {refusal(perdurev1.Reason_REASON_NODE_NOT_FOUND), true},
		"partition":         {refusal(perdurev1.Reason_REASON_PARTITION_NOT_FOUND), true},
		"old server":        {status.Error(codes.Unimplemented, "no such method"), true},
		"too large":         {status.Error(codes.ResourceExhausted, "too large"), true},
		"conflict":          {refusal(perdurev1.Reason_REASON_ID_CONFLICT), false},
		"finished":          {refusal(perdurev1.Reason_REASON_ALREADY_FINISHED), false},
		"not found":         {refusal(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND), false},
		"rule":              {refusal(perdurev1.Reason_REASON_RULE_BROKEN), false},
		"form of a request": {refusal(perdurev1.Reason_REASON_BAD_REQUEST), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "a")
			c.answer = script(&perdurev1.DescribeResponse{}, refusal(perdurev1.Reason_REASON_OUTCOME_UNKNOWN), tc.refusal)
			err := c.client(Options{Clock: &fakeClock{}}).Signal(t.Context(), "x", "s", nil)
			if errors.Is(err, ErrOutcomeUnknown) != tc.unknown || errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
			var said *api.Error
			if want, ours := api.FromStatus(tc.refusal); ours && (!errors.As(err, &said) || said.Reason != want.Reason) {
				t.Errorf("%v does not say why", err)
			}
			c.answer = script(&perdurev1.DescribeResponse{}, refusal(perdurev1.Reason_REASON_OUTCOME_UNKNOWN), refusal(perdurev1.Reason_REASON_OUTCOME_UNKNOWN), tc.refusal)
			if _, err := c.client(Options{Clock: &fakeClock{}}).Describe(t.Context(), "x"); errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("a read: %v", err)
			}
		})
	}
}

// The error of a call that was given up says whether the write may have been applied.
func TestGivenUp(t *testing.T) {
	t.Parallel() // it waits most of the time
	// The events before the end have this long, on a busy machine too; less than an attempt may take.
	const enough = 2500 * time.Millisecond
	var all sync.WaitGroup
	defer all.Wait()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	always := func(err error) func(context.Context, int, any) (any, error) {
		return func(context.Context, int, any) (any, error) { return nil, err }
	}
	write := func(ctx context.Context, c *Client) error { return c.Signal(ctx, "x", "s", nil) }
	read := func(ctx context.Context, c *Client) error { _, err := c.Describe(ctx, "x"); return err }
	for _, tc := range []struct {
		name   string
		down   bool
		answer func(context.Context, int, any) (any, error)
		call   func(context.Context, *Client) error
		want   error
	}{
		{"no node, write", true, nil, write, ErrUnavailable},
		{"no node, read", true, nil, read, ErrUnavailable},
		{"no leader, write", false, always(refusal(perdurev1.Reason_REASON_NOT_LEADER)), write, ErrUnavailable},
		{"no answer, write", false, func(ctx context.Context, _ int, _ any) (any, error) { return nil, hang(ctx) }, write, ErrOutcomeUnknown},
		{"no answer, read", false, func(ctx context.Context, _ int, _ any) (any, error) { return nil, hang(ctx) }, read, ErrUnavailable},
		{"broken once, then no leader, write", false, func(_ context.Context, n int, _ any) (any, error) {
			if n == 0 {
				return nil, status.Error(codes.Unavailable, "broken")
			}
			return nil, refusal(perdurev1.Reason_REASON_NOT_LEADER)
		}, write, ErrOutcomeUnknown},
		{"unknown, write", false, always(refusal(perdurev1.Reason_REASON_OUTCOME_UNKNOWN)), write, ErrOutcomeUnknown},
	} {
		for _, by := range []string{"context", "timeout"} {
			c := newCluster(t, "a", "b")
			c.answer = tc.answer
			if tc.down {
				c.nodes["a"].server.Stop()
				c.nodes["b"].server.Stop()
			}
			// The second pause does not end: when the time is over, no attempt is on its way, except one that hangs.
			opts := Options{Timeout: enough, Clock: &heldClock{passes: 1}}
			if by == "context" {
				opts.Timeout = time.Hour
			}
			cl := c.client(opts)
			all.Go(func() { // side by side, however many tests may run at once: each takes all of its time
				ctx := t.Context()
				if by == "context" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, enough)
					defer cancel()
				}
				err := tc.call(ctx, cl)
				other := ErrUnavailable
				if tc.want == ErrUnavailable {
					other = ErrOutcomeUnknown
				}
				if !errors.Is(err, tc.want) || errors.Is(err, other) || !errors.Is(err, context.DeadlineExceeded) || !Unavailable(err) {
					t.Errorf("%s by %s: %v", tc.name, by, err)
				}
				if !strings.HasPrefix(err.Error(), "client: ") || !strings.Contains(err.Error(), `"x": `+tc.want.Error()) {
					t.Errorf("%s by %s: %v", tc.name, by, err)
				}
			})
		}
	}
}

// A node's answer stays the cause when the deadline passes during another attempt.
func TestGivenUpSaysWhatWasSaid(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := newCluster(t, "a")
	c.answer = func(ctx context.Context, n int, _ any) (any, error) {
		if n == 0 {
			return nil, refusal(perdurev1.Reason_REASON_NOT_LEADER)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_, err := c.client(Options{Timeout: 2 * time.Second, Clock: &heldClock{passes: 1}}).Describe(t.Context(), "x")
	var said *api.Error
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &said) || said.Reason != perdurev1.Reason_REASON_NOT_LEADER {
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) != 2 {
		t.Errorf("asked %d times", len(c.asked))
	}
}

// heldClock lets some pauses pass at once; those after them never end.
type heldClock struct {
	mu     sync.Mutex
	passes int
}

func (c *heldClock) Now() time.Time { return time.Unix(0, 0) }

func (c *heldClock) After(time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if c.passes > 0 {
		c.passes--
		ch <- c.Now()
	}
	return ch
}

// A server that fails while it answers leaves a write unknown, and is not asked again.
func TestBrokenServer(t *testing.T) {
	c := newCluster(t, "a")
	c.answer = script(nil, status.Error(codes.Internal, "panic"), status.Error(codes.Internal, "panic"))
	cl := c.client(Options{})
	if err := cl.Signal(t.Context(), "x", "s", nil); !errors.Is(err, ErrOutcomeUnknown) || status.Code(errors.Unwrap(wrapped{err})) != codes.Internal {
		t.Error(err)
	}
	if _, err := cl.Describe(t.Context(), "x"); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	if len(c.asked) != 2 {
		t.Errorf("%d attempts", len(c.asked))
	}
}

// wrapped shows the cause among the errors that a callError wraps.
type wrapped struct{ error }

func (w wrapped) Unwrap() error { return w.error.(*callError).cause }

// A node that dies in the middle of a call is asked again when it is back, as the same request.
func TestNodeRestarts(t *testing.T) {
	c := newCluster(t, "a")
	c.answer = func(ctx context.Context, n int, _ any) (any, error) {
		if n == 0 {
			go func() {
				node := c.nodes["a"]
				node.server.Stop()
				node.start()
			}()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return started, nil
	}
	if _, err := c.client(Options{}).Start(t.Context(), StartOptions{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if len(c.requests) != 2 || string(c.requests[0].GetId()) != string(c.requests[1].GetId()) {
		t.Errorf("requests %v", c.requests)
	}
}

// A caller whose context ends gets its answer at once, and the error says whether the call may have applied.
func TestCallerCancels(t *testing.T) {
	c := newCluster(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	c.answer = func(ctx context.Context, _ int, _ any) (any, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	err := c.client(Options{}).Signal(ctx, "x", "s", nil)
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.client(Options{}).Signal(ctx, "x", "s", nil); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) || len(c.asked) != 1 {
		t.Error(err)
	}
}

func TestResult(t *testing.T) {
	done := func(status perdurev1.ExecutionStatus, o *perdurev1.Outcome) *perdurev1.ResultResponse {
		return &perdurev1.ResultResponse{Done: true, Status: status, Outcome: o}
	}
	c := newCluster(t, "a")
	clock := &fakeClock{}
	cl := c.client(Options{Clock: clock})
	answers := []any{
		&perdurev1.ResultResponse{}, &perdurev1.ResultResponse{},
		done(perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte("v")}}),
		done(perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: "mine", Message: "m"}}}),
		done(perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED, nil),
		&perdurev1.ResultResponse{},
	}
	c.answer = func(_ context.Context, n int, req any) (any, error) {
		if n < 2 && req.(*perdurev1.ResultRequest).GetWaitMs() != 20_000 {
			t.Errorf("a poll asks for %d ms", req.(*perdurev1.ResultRequest).GetWaitMs())
		}
		return answers[n], nil
	}
	if v, err := cl.Result(t.Context(), "x"); string(v) != "v" || err != nil {
		t.Error(v, err)
	}
	if fmt.Sprint(clock.waits) != "[50ms 50ms]" {
		t.Errorf("waited %v", clock.waits)
	}
	_, err := cl.Result(t.Context(), "x")
	var e *ExecutionError
	if !errors.As(err, &e) || e.ID != "x" || e.Failure.GetType() != "mine" || err.Error() != `execution "x" failed: mine: m` {
		t.Error(err)
	}
	_, err = cl.Result(t.Context(), "x")
	if !errors.As(err, &e) || e.Failure.GetType() != "cancelled" || err.Error() != `execution "x" cancelled` {
		t.Error(err)
	}
	if _, ended, err := cl.PollResult(t.Context(), "x", time.Hour); ended || err != nil {
		t.Error(ended, err)
	}
	// Not finished, and the caller's time is over.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c.answer = func(context.Context, int, any) (any, error) { return &perdurev1.ResultResponse{}, nil }
	if _, err := c.client(Options{}).Result(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func entry(seq uint64, ev *perdurev1.Event) *perdurev1.JournalEntry {
	return &perdurev1.JournalEntry{Seq: seq, Event: ev}
}

func TestJournal(t *testing.T) {
	c := newCluster(t, "a")
	cl := c.client(Options{Clock: &fakeClock{}})
	all := []*perdurev1.JournalEntry{}
	for seq := range uint64(7) {
		all = append(all, entry(seq, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionResumed{}}))
	}
	pages := 0
	c.answer = func(_ context.Context, _ int, req any) (any, error) {
		r := req.(*perdurev1.JournalRequest)
		pages++
		from := min(r.GetFromSeq(), uint64(len(all)))
		return &perdurev1.JournalResponse{Entries: all[from:min(from+3, uint64(len(all)))], NextSeq: uint64(len(all))}, nil
	}
	read := func(opts ...ReadOption) (seqs []uint64) {
		pages = 0
		for e, err := range cl.Journal(t.Context(), "x", opts...) {
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, e.GetSeq())
		}
		return seqs
	}
	if got := fmt.Sprint(read()); got != "[0 1 2 3 4 5 6]" || pages != 3 {
		t.Errorf("%s in %d pages", got, pages)
	}
	if got := fmt.Sprint(read(FromSeq(5), Stale())); got != "[5 6]" {
		t.Error(got)
	}
	for e := range cl.Journal(t.Context(), "x") {
		if e.GetSeq() == 1 {
			break
		}
	}
	// Following ends with the execution.
	inner := c.answer
	c.answer = func(ctx context.Context, n int, req any) (any, error) {
		resp, err := inner(ctx, n, req)
		if pages == 5 {
			all = append(all, entry(7, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{}}))
		}
		return resp, err
	}
	if got := fmt.Sprint(read(Follow(time.Second))); got != "[0 1 2 3 4 5 6 7]" {
		t.Error(got)
	}
	c.answer = script(nil, make([]error, 1000)...)
	c.answer = func(context.Context, int, any) (any, error) {
		return nil, refusal(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	}
	n := 0
	for e, err := range cl.Journal(t.Context(), "x") {
		if n++; e != nil || !api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) || n > 1 {
			t.Error(e, err)
		}
	}
}

func TestList(t *testing.T) {
	c := newCluster(t, "a")
	cl := c.client(Options{Namespace: "n"})
	c.answer = func(_ context.Context, _ int, req any) (any, error) {
		r := req.(*perdurev1.ListRequest)
		if r.GetNamespace() != "n" || r.GetFunction() != "f" || r.GetIdPrefix() != "p" || len(r.GetStatus()) != 1 || r.GetLevel() != perdurev1.ReadLevel_READ_LEVEL_STALE {
			t.Errorf("request %v", r)
		}
		page := len(r.GetCursor())
		resp := &perdurev1.ListResponse{}
		for i := range 2 {
			resp.Executions = append(resp.Executions, &perdurev1.ExecutionSummary{Id: fmt.Sprint(page, i)})
		}
		if page < 2 {
			resp.Cursor = make([]byte, page+1)
		}
		return resp, nil
	}
	o := ListOptions{Status: []Status{perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING}, Function: "f", IDPrefix: "p", Stale: true}
	for limit, want := range map[int]string{0: "0 0,0 1,1 0,1 1,2 0,2 1", 3: "0 0,0 1,1 0", 6: "0 0,0 1,1 0,1 1,2 0,2 1"} {
		o.Limit = limit
		var ids []string
		for e, err := range cl.List(t.Context(), o) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.GetId())
		}
		if got := strings.Join(ids, ","); got != want {
			t.Errorf("limit %d: %s", limit, got)
		}
	}
}

// Every call says what it was asked to, in the namespace of the client.
func TestRequests(t *testing.T) {
	c := newCluster(t, "a")
	cl := c.client(Options{})
	var last any
	answers := func(resp any) {
		c.answer = func(_ context.Context, _ int, req any) (any, error) { last = req; return resp, nil }
	}
	check := func(want proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := last.(interface {
			GetRequest() *perdurev1.RequestID
		}); ok && len(r.GetRequest().GetId()) != 16 {
			t.Errorf("%T without request id", last)
		}
		m := proto.Clone(last.(proto.Message)).ProtoReflect()
		if f := m.Descriptor().Fields().ByName("request"); f != nil {
			m.Clear(f)
		}
		if !proto.Equal(m.Interface(), want) {
			t.Errorf("asked %v\nwant  %v", m.Interface(), want)
		}
	}
	answers(started)
	_, err := cl.Start(t.Context(), StartOptions{ID: "x", Function: "f", Input: []byte("i"), Timeout: 1500 * time.Microsecond,
		Tags: map[string]string{"k": "v"}, Digest: "d", AllowUnknownFunction: true})
	check(&perdurev1.StartRequest{Namespace: "default", Id: "x", Function: "f", Input: []byte("i"), TimeoutMs: 2,
		Tags: map[string]string{"k": "v"}, ComponentDigest: "d", AllowUnknownFunction: true}, err)
	answers(&perdurev1.SignalResponse{})
	check(&perdurev1.SignalRequest{Namespace: "default", Id: "x", Name: "s", Payload: []byte("p")}, cl.Signal(t.Context(), "x", "s", []byte("p")))
	answers(&perdurev1.CancelResponse{Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING})
	st, err := cl.Cancel(t.Context(), "x", "r", time.Second)
	check(&perdurev1.CancelRequest{Namespace: "default", Id: "x", Reason: "r", GraceMs: 1000}, err)
	if st != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING {
		t.Error(st)
	}
	answers(&perdurev1.TerminateResponse{Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED})
	st, err = cl.Terminate(t.Context(), "x", "r")
	check(&perdurev1.TerminateRequest{Namespace: "default", Id: "x", Reason: "r"}, err)
	if st != perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED {
		t.Error(st)
	}
	answers(&perdurev1.DescribeResponse{Execution: &perdurev1.Execution{Id: "x"}})
	ex, err := cl.Describe(t.Context(), "x", Stale())
	check(&perdurev1.DescribeRequest{Namespace: "default", Id: "x", Level: perdurev1.ReadLevel_READ_LEVEL_STALE}, err)
	if ex.GetId() != "x" {
		t.Error(ex)
	}
	resolved := perdurev1.PromiseState_PROMISE_STATE_RESOLVED
	answers(&perdurev1.PromiseResponse{Promise: &perdurev1.Promise{Id: "p", State: resolved}})
	p, err := cl.CreatePromise(t.Context(), "p", PromiseOptions{Param: []byte("a"), Tags: map[string]string{"k": "v"}, Timeout: time.Minute})
	check(&perdurev1.CreatePromiseRequest{Namespace: "default", Id: "p", Param: []byte("a"), Tags: map[string]string{"k": "v"}, TimeoutMs: 60_000}, err)
	if p.GetId() != "p" {
		t.Error(p)
	}
	_, err = cl.GetPromise(t.Context(), "p")
	check(&perdurev1.GetPromiseRequest{Namespace: "default", Id: "p"}, err)
	o := &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte("v")}}
	_, err = cl.SettlePromise(t.Context(), "p", resolved, o)
	check(&perdurev1.SettlePromiseRequest{Namespace: "default", Id: "p", State: resolved, Value: o}, err)
	p, err = cl.AwaitPromise(t.Context(), "p")
	check(&perdurev1.AwaitPromiseRequest{Namespace: "default", Id: "p", WaitMs: 20_000}, err)
	if p.GetState() != resolved {
		t.Error(p)
	}
}

// A worker whose stream broke does not come back to the same node first.
func TestWork(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	cl := c.client(Options{})
	greet := func() string {
		t.Helper()
		stream, err := cl.Work(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&perdurev1.WorkRequest{CallId: 1}); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m.GetWelcome().GetNodeId()
	}
	if got := greet() + greet() + greet() + greet(); got != "abca" {
		t.Errorf("streams to %s", got)
	}
	for _, n := range c.nodes {
		n.server.Stop()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		stream, err := cl.Work(t.Context())
		if errors.Is(err, ErrUnavailable) {
			break
		}
		// The connection's end may not have been noticed yet; then the stream breaks by itself.
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cl.Work(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDial(t *testing.T) {
	if _, err := Dial(Options{Timeout: -1}); err == nil {
		t.Error("a negative timeout")
	}
	if _, err := Dial(Options{Addrs: []string{"x", "bad\x7fscheme:///%zz"}}); err == nil {
		t.Error("an address that is none")
	}
	c, err := Dial(Options{})
	if err != nil || c.Namespace() != "default" || c.nodes[0].addr != DefaultAddr || c.opts.Timeout != DefaultTimeout || c.Conn() == nil {
		t.Fatal(c, err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if _, err := c.Describe(t.Context(), "x"); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	if _, err := c.Work(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for d, want := range map[time.Duration]int64{-1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 1<<63 - 1: 9223372036855} {
		if got := Millis(d); got != want {
			t.Errorf("%v is %d ms", d, got)
		}
	}
}
