package resonate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/testkit"
)

// waitLimit bounds the waits for states that must come.
const waitLimit = time.Minute

// newSandbox makes a sandbox whose clock stands still.
func newSandbox(t testing.TB, dotted bool) *Sandbox {
	t.Helper()
	s, err := NewSandbox(SandboxOptions{Namespace: "ns", DottedIDs: dotted, MaxStreams: 10, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Stop(true)
	return s
}

// debugPort is a port in debug mode.
type debugPort struct {
	port
	sandbox *Sandbox
}

func newDebugPort(t *testing.T) debugPort {
	t.Helper()
	sandbox := newSandbox(t, false)
	return debugPort{newPort(t, func(o *Options) { o.Store, o.Sandbox = sandbox.Store(), sandbox }), sandbox}
}

// at sends a request that happens at a time.
func (p debugPort) at(t *testing.T, ms int64, want int, kind, data string) any {
	t.Helper()
	status, _, _, out := p.post(t, fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c","version":%q,"resonate:debug_time":%d},"data":%s}`, kind, Version, ms, data))
	if status != want {
		t.Fatalf("%s %s at %d: %d %v, want %d", kind, data, ms, status, out, want)
	}
	return out
}

// tick sweeps at a time.
func (p debugPort) tick(t *testing.T, ms int64) {
	t.Helper()
	if err := p.sandbox.Sweep(withDebugTime(context.Background(), ms)); err != nil {
		t.Fatal(err)
	}
}

// snap is what debug.snap shows, in short: each list with what its elements have.
func (p debugPort) snap(t *testing.T) string {
	t.Helper()
	status, out := p.call(t, "debug.snap", `{}`)
	if status != 200 {
		t.Fatalf("debug.snap: %d %v", status, out)
	}
	b, err := json.Marshal(out)
	var s Snap
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, x := range s.Promises {
		lines = append(lines, fmt.Sprintf("promise %s %s %d", x.ID, x.State, x.CreatedAt))
	}
	for _, x := range s.PromiseTimeouts {
		lines = append(lines, fmt.Sprintf("timeout %s %d", x.ID, x.Timeout))
	}
	for _, x := range s.Callbacks {
		lines = append(lines, fmt.Sprintf("callback %s %s", x.Awaiter, x.Awaited))
	}
	for _, x := range s.Listeners {
		lines = append(lines, fmt.Sprintf("listener %s %s", x.ID, x.Address))
	}
	for _, x := range s.Tasks {
		lines = append(lines, fmt.Sprintf("task %s %s %d %s", x.ID, x.State, x.Version, x.PID))
	}
	for _, x := range s.TaskTimeouts {
		lines = append(lines, fmt.Sprintf("timer %s %d %d", x.ID, x.Type, x.Timeout))
	}
	for _, x := range s.Messages {
		lines = append(lines, fmt.Sprintf("message %s %s", x.Address, x.Message))
	}
	return strings.Join(lines, "\n")
}

func (p debugPort) shows(t *testing.T, lines ...string) {
	t.Helper()
	if got, want := p.snap(t), strings.Join(lines, "\n"); got != want {
		t.Fatalf("debug.snap shows\n%s\nwant\n%s", got, want)
	}
}

const execute = `message poll://any@g {"data":{"task":{"id":"wf","version":%d}},"head":{},"kind":"execute"}`

// A trace of the protocol's checkers: requests set the clock, and debug.snap shows each consequence.
func TestDebugMode(t *testing.T) {
	p := newDebugPort(t)
	p.shows(t)
	out := p.at(t, 100, 200, "promise.create", `{"id":"wf","timeoutAt":90000,"tags":{"resonate:target":"poll://any@g"}}`)
	if at(out, "promise", "createdAt") != 100.0 {
		t.Errorf("created %v", out)
	}
	p.shows(t, "promise wf pending 100", "timeout wf 90000", "task wf pending 0 ", "timer wf 0 30100", fmt.Sprintf(execute, 0))
	p.at(t, 200, 200, "task.acquire", `{"id":"wf","version":0,"pid":"p","ttl":500}`)
	p.at(t, 200, 200, "promise.create", `{"id":"wf:0","timeoutAt":1000,"tags":{"resonate:scope":"global"}}`)
	p.at(t, 200, 200, "promise.register_listener", `{"awaited":"wf:0","address":"poll://uni@g/c"}`)
	p.at(t, 300, 200, "task.suspend", `{"id":"wf","version":1,"actions":[{"kind":"promise.register_callback","head":{},"data":{"awaited":"wf:0","awaiter":"wf"}}]}`)
	p.shows(t, "promise wf pending 100", "promise wf:0 pending 200", "timeout wf 90000", "timeout wf:0 1000", "callback wf wf:0",
		"listener wf:0 poll://uni@g/c", "task wf suspended 1 ")
	// The deadline of the awaited promise resumes the task; a lease that ends gives it to another worker.
	p.at(t, 1000, 200, "debug.tick", `{"time":1000}`)
	unblock := `message poll://uni@g/c {"data":{"promise":{"createdAt":200,"id":"wf:0","param":{},"settledAt":1000,"state":"rejected_timedout","tags":{"resonate:scope":"global"},"timeoutAt":1000,"value":{}}},"head":{},"kind":"unblock"}`
	p.shows(t, "promise wf pending 100", "promise wf:0 rejected_timedout 200", "timeout wf 90000", "task wf pending 1 ", "timer wf 0 31000",
		fmt.Sprintf(execute, 1), unblock)
	p.at(t, 1100, 200, "task.acquire", `{"id":"wf","version":1,"pid":"p","ttl":500}`)
	p.at(t, 1599, 200, "debug.tick", `{"time":1599}`)
	p.shows(t, "promise wf pending 100", "promise wf:0 rejected_timedout 200", "timeout wf 90000", "task wf acquired 2 p", "timer wf 1 1600", unblock)
	p.at(t, 1600, 200, "debug.tick", `{"time":1600}`)
	p.shows(t, "promise wf pending 100", "promise wf:0 rejected_timedout 200", "timeout wf 90000", "task wf pending 2 ", "timer wf 0 31600",
		fmt.Sprintf(execute, 2), unblock)
	// A read at a time shows what has expired by then; time never runs backwards.
	if out := p.at(t, 90_000, 200, "promise.get", `{"id":"wf"}`); at(out, "promise", "state") != "rejected_timedout" {
		t.Errorf("at its deadline: %v", out)
	}
	if out := p.at(t, 50, 200, "promise.create", `{"id":"b","timeoutAt":900000}`); at(out, "promise", "createdAt") != 90_000.0 {
		t.Errorf("at an earlier time: %v", out)
	}
	if status, out := p.call(t, "promise.create", `{"id":"c","timeoutAt":900000}`); status != 200 || at(out, "promise", "createdAt") != 90_000.0 {
		t.Errorf("at no time: %v", out)
	}
	p.at(t, 90_000, 400, "debug.tick", `{"time":90001}`)
	p.at(t, 90_000, 400, "debug.tick", `{}`)
	p.at(t, 90_000, 400, "debug.snapshot", `{}`)
	// A reset deletes everything and begins time anew.
	p.at(t, 0, 200, "debug.reset", `{}`)
	p.shows(t)
	if out := p.at(t, 7, 200, "promise.create", `{"id":"wf","timeoutAt":9}`); at(out, "promise", "createdAt") != 7.0 {
		t.Errorf("after a reset: %v", out)
	}
	p.at(t, 8, 404, "task.get", `{"id":"wf"}`)
}

// Debug requests stop and start the wall's clock.
func TestDebugClock(t *testing.T) {
	p := newDebugPort(t)
	p.sandbox.now = func() time.Time { return time.UnixMilli(5000) }
	p.at(t, 10, 200, "promise.create", `{"id":"a","timeoutAt":4000,"tags":{"resonate:timer":"true"}}`)
	if status, out := p.call(t, "promise.get", `{"id":"a"}`); status != 200 || at(out, "promise", "state") != "pending" {
		t.Fatalf("time goes on: %v", out)
	}
	p.call(t, "debug.stop", `{}`)
	testkit.Eventually(t, waitLimit, "a sweep by the wall's clock", func() bool { return strings.Contains(p.snap(t), "promise a resolved") }, nil)
	if status, out := p.call(t, "promise.create", `{"id":"b","timeoutAt":9000}`); status != 200 || at(out, "promise", "createdAt") != 5000.0 {
		t.Errorf("created %v", out)
	}
	p.call(t, "debug.start", `{}`)
	if status, out := p.call(t, "promise.create", `{"id":"c","timeoutAt":9000}`); status != 200 || at(out, "promise", "createdAt") != 5000.0 {
		t.Errorf("created %v", out)
	}
}

// Streams get messages while time stands still, and those of a reset's past go nowhere.
func TestDebugMessages(t *testing.T) {
	p := newDebugPort(t)
	stream, err := p.sandbox.Streams().Open("ns", "g", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	next := func() string {
		t.Helper()
		select {
		case <-stream.Ready():
		case <-time.After(waitLimit):
			t.Fatal("no message")
		}
		var out []string
		for _, q := range stream.Take() {
			text, err := ids{}.encodeMessage(q.Message)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(text))
			stream.Written(q, true)
		}
		return strings.Join(out, "\n")
	}
	p.at(t, 1, 200, "promise.create", `{"id":"wf","timeoutAt":90000,"tags":{"resonate:target":"poll://any@g"}}`)
	if got := next(); got != `{"kind":"execute","head":{},"data":{"task":{"id":"wf","version":0}}}` {
		t.Errorf("message %s", got)
	}
	p.at(t, 2, 200, "promise.register_listener", `{"awaited":"wf","address":"poll://uni@g/p"}`)
	p.at(t, 3, 200, "promise.settle", `{"id":"wf","state":"resolved"}`)
	if got := next(); !strings.Contains(got, `"unblock"`) {
		t.Errorf("message %s", got)
	}
	testkit.Eventually(t, waitLimit, "the delivered unblock to be forgotten", func() bool { return !strings.Contains(p.snap(t), "message") }, nil)
}

// What an HTTP target refuses is posted again: the execute at the task's retry, the unblock until it is accepted.
func TestPushIsRepeated(t *testing.T) {
	p := newDebugPort(t)
	posts := make(chan string, 100)
	refuse := make(chan bool, 100)
	p.sandbox.Streams().ServePush(func(m *commandv1.AddressMessage, over func(accepted bool)) bool {
		kind := "execute"
		if m.GetUnblock() != nil {
			kind = "unblock"
		}
		posts <- fmt.Sprintf("%s v%d to %s", kind, m.GetExecute().GetVersion(), m.Address)
		go func() { over(!<-refuse) }()
		return true
	})
	next := func(want string, refused bool) {
		t.Helper()
		select {
		case got := <-posts:
			if got != want {
				t.Fatalf("posted %s, want %s", got, want)
			}
			refuse <- refused
		case <-time.After(waitLimit):
			t.Fatalf("%s was not posted", want)
		}
	}
	p.at(t, 1, 200, "promise.create", `{"id":"wf","timeoutAt":900000,"tags":{"resonate:target":"http://h/x"}}`)
	next("execute v0 to http://h/x", true)
	p.tick(t, 30_000)
	p.tick(t, 30_001)
	next("execute v0 to http://h/x", false)
	p.at(t, 30_002, 200, "promise.register_listener", `{"awaited":"wf","address":"http://h/l"}`)
	p.at(t, 30_003, 200, "promise.settle", `{"id":"wf","state":"resolved"}`)
	next("unblock v0 to http://h/l", true)
	next("unblock v0 to http://h/l", false)
	testkit.Eventually(t, waitLimit, "the accepted unblock to be forgotten", func() bool { return !strings.Contains(p.snap(t), "message") }, nil)
	p.sandbox.Streams().ServePush(nil)
	if len(posts) > 0 {
		t.Errorf("posted %s", <-posts)
	}
}

// A tick runs the schedules that are due, each run at its own time.
func TestDebugSchedules(t *testing.T) {
	p := newDebugPort(t)
	p.at(t, 1000, 200, "schedule.create", `{"id":"s","cron":"* * * * *","promiseId":"{{.id}}-{{.timestamp}}","promiseTimeout":100000,"promiseTags":{"resonate:target":"poll://any@g","k":"v"}}`)
	p.tick(t, 59_999)
	p.shows(t)
	p.tick(t, 185_000)
	var promises []string
	for _, line := range strings.Split(p.snap(t), "\n") {
		if strings.HasPrefix(line, "promise") {
			promises = append(promises, line)
		}
	}
	// The first one's deadline has passed.
	if want := []string{"promise s-120000 pending 120000", "promise s-180000 pending 180000", "promise s-60000 rejected_timedout 60000"}; !slices.Equal(promises, want) {
		t.Errorf("promises %q, want %q", promises, want)
	}
	out := p.at(t, 185_000, 200, "promise.get", `{"id":"s-180000"}`)
	want := map[string]any{"resonate:target": "poll://any@g", "k": "v", "resonate:schedule": "s", "resonate:origin": "s-180000", "resonate:branch": "s-180000",
		"resonate:parent": "s-180000", "resonate:prefix": "s-180000"}
	if fmt.Sprint(at(out, "promise", "tags")) != fmt.Sprint(want) || at(out, "promise", "timeoutAt") != 280_000.0 {
		t.Errorf("promise %v", out)
	}
	out = p.at(t, 185_000, 200, "schedule.get", `{"id":"s"}`)
	if at(out, "schedule", "lastRunAt") != 180_000.0 || at(out, "schedule", "nextRunAt") != 240_000.0 {
		t.Errorf("schedule %v", out)
	}
}

// Debug requests need a server in debug mode, and a token that may do everything.
func TestDebugIsGuarded(t *testing.T) {
	plain := newPort(t, nil)
	for kind := range debugOperations {
		if status, _ := plain.call(t, kind, `{"time":1}`); status != 403 {
			t.Errorf("%s without debug mode: %d, want 403", kind, status)
		}
	}
	a := "a"
	callers := map[string]Caller{"admin": {Admin: true}, "a": {Prefix: &a}}
	sandbox := newSandbox(t, false)
	p := newPort(t, func(o *Options) {
		o.Store, o.Sandbox = sandbox.Store(), sandbox
		o.Authenticate = func(_ *http.Request, token string) (Caller, error) {
			c, ok := callers[token]
			if !ok {
				return c, fmt.Errorf("the token is not known here")
			}
			return c, nil
		}
	})
	for token, want := range map[string]int{"": 401, "a": 403, "admin": 200} {
		for kind := range debugOperations {
			body := fmt.Sprintf(`{"kind":%q,"head":{"corrId":"c","version":%q,"auth":%q},"data":{"time":1}}`, kind, Version, token)
			if kind == "debug.tick" && want == 200 {
				continue // its answer is a list
			}
			if status, _, _, out := p.post(t, body); status != want {
				t.Errorf("%s with token %q: %d %v, want %d", kind, token, status, out, want)
			}
		}
	}
}

// A sandbox is bounded, and a reset makes space.
func TestSandboxIsBounded(t *testing.T) {
	s := newSandbox(t, false)
	ctx := context.Background()
	s.mu.Lock()
	s.term.bytes = maxSandbox + 1
	s.mu.Unlock()
	_, err := s.Store().CreatePromise(ctx, NewPromise{ID: "a", TimeoutAt: 9})
	if r := refusalOf(err); r.Status != 429 {
		t.Errorf("a full sandbox: %v", err)
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Store().CreatePromise(ctx, NewPromise{ID: "a", TimeoutAt: 9}); err != nil {
		t.Error(err)
	}
	if s.term.bytes == 0 {
		t.Error("what a client has written does not count")
	}
}
