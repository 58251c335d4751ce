package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// benchPart is a partition in memory, with entries applied one by one as a replica does.
type benchPart struct {
	b     *testing.B
	m     *Machine
	state *state.MemReader
	index uint64
	now   int64
	// writes and bytes count what was put into the state, gets and scans what was asked of it: on disk,
	// that is what costs.
	writes, bytes int
	gets, scans   int
}

// Get implements Reader.
func (p *benchPart) Get(key []byte) ([]byte, bool, error) {
	p.gets++
	return p.state.Get(key)
}

// Scan implements Reader.
func (p *benchPart) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	p.scans++
	return p.state.Scan(lower, upper, fn)
}

func newBenchPart(b *testing.B) *benchPart {
	p := &benchPart{b: b, state: state.NewMemReader(), now: 1_000_000}
	m, err := New(Config{Partitions: 1}, p)
	if err != nil {
		b.Fatal(err)
	}
	p.m = m
	return p
}

func (p *benchPart) apply(entry *commandv1.Entry) *Result {
	p.index++
	p.now++
	entry.TimeMs = p.now
	res, err := p.m.Apply(p.index, entry)
	if err != nil {
		p.b.Fatal(err)
	}
	writes := p.m.Writes()
	for _, w := range writes {
		p.bytes += len(w.Key) + len(w.Value)
	}
	p.writes += len(writes)
	p.state.Apply(writes)
	p.m.Committed()
	for _, r := range res.Replies {
		if e := wire.ReplyError(r); e != nil {
			p.b.Fatal(e)
		}
	}
	return res
}

func (p *benchPart) reset() {
	p.writes, p.bytes, p.gets, p.scans = 0, 0, 0, 0
	p.b.ReportAllocs()
	p.b.ResetTimer()
}

func credit(functions ...string) []*commandv1.Grant {
	o := grant("w", 1, functions...)
	o.LeaseMs = 1 << 40
	return []*commandv1.Grant{o}
}

var benchInput = make([]byte, 100)

func (p *benchPart) start(n int) *perdurev1.TaskToken {
	cmd := startCmd(fmt.Appendf(nil, "request-%08d", n), fmt.Sprintf("order-%08d", n), "checkout", string(benchInput))
	res := p.apply(&commandv1.Entry{Commands: []*commandv1.Command{cmd}, Grants: credit("checkout")})
	return res.Effects.Assigned[0].Token
}

func (p *benchPart) step(token *perdurev1.TaskToken, n uint32, known uint64, more ...*perdurev1.Event) {
	promise := fmt.Sprintf("%s:%d", token.Id, n)
	c := &perdurev1.Commit{Task: token, NextChild: n, KnownSeq: known}
	if len(more) == 0 {
		c.Events = []*perdurev1.Event{
			scheduled(promise, perdurev1.InvokeKind_INVOKE_KIND_STEP, "step", "", "attempts=3"),
			invokeStarted(promise, 1), completed(promise, 1, value(string(benchInput))),
		}
	}
	c.Events = append(c.Events, more...)
	p.apply(&commandv1.Entry{Commands: []*commandv1.Command{wrapCommit(fmt.Appendf(nil, "commit-%s-%d", token.Id, n), c)}})
}

func (p *benchPart) report() {
	p.b.ReportMetric(float64(p.writes)/float64(p.b.N), "writes/op")
	p.b.ReportMetric(float64(p.bytes)/float64(p.b.N), "bytes/op")
	p.b.ReportMetric(float64(p.gets)/float64(p.b.N), "gets/op")
	p.b.ReportMetric(float64(p.scans)/float64(p.b.N), "scans/op")
}

func returning(result string) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte(result)}}}
}

// BenchmarkThreeSteps is one execution of three local steps: a start that a grant takes at once, three
// commits of three events, and the end.
func BenchmarkThreeSteps(b *testing.B) {
	p := newBenchPart(b)
	p.reset()
	for n := range b.N {
		token := p.start(n)
		for step := range uint32(3) {
			p.step(token, step, uint64(1+3*step))
		}
		p.step(token, 3, 10, returning("done"))
	}
	p.report()
}

// BenchmarkStart is a start that a grant takes.
func BenchmarkStart(b *testing.B) {
	p := newBenchPart(b)
	p.reset()
	for n := range b.N {
		p.start(n)
	}
	p.report()
}

// BenchmarkCommit is one commit of a local step, of three events.
func BenchmarkCommit(b *testing.B) {
	p := newBenchPart(b)
	token := p.start(0)
	p.reset()
	for n := range b.N {
		p.step(token, uint32(n), uint64(1+3*n))
	}
	p.report()
}

// BenchmarkCompletion is the commit that ends an execution, after one of a start.
func BenchmarkCompletion(b *testing.B) {
	p := newBenchPart(b)
	tokens := make([]*perdurev1.TaskToken, b.N)
	for n := range tokens {
		tokens[n] = p.start(n)
	}
	p.reset()
	for _, token := range tokens {
		p.step(token, 0, 1, returning("done"))
	}
	p.report()
}

// BenchmarkChild is a call of a child that returns at once: two executions, a wait and a resume.
func BenchmarkChild(b *testing.B) {
	p := newBenchPart(b)
	p.reset()
	for n := range b.N {
		token := p.start(n)
		child := token.Id + ":0"
		cmd := wrapCommit(fmt.Appendf(nil, "commit-%s", token.Id), &perdurev1.Commit{Task: token, KnownSeq: 1, Events: []*perdurev1.Event{
			scheduled(child, perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, "child", string(benchInput), "attempts=1"),
			awaiting(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, "", child),
		}})
		res := p.apply(&commandv1.Entry{Commands: []*commandv1.Command{cmd}, Grants: credit("child")})
		cmd = wrapCommit(fmt.Appendf(nil, "commit-%s", child), &perdurev1.Commit{Task: res.Effects.Assigned[0].Token, KnownSeq: 1,
			Events: []*perdurev1.Event{returning("done")}})
		res = p.apply(&commandv1.Entry{Commands: []*commandv1.Command{cmd}, Grants: credit("checkout")})
		p.step(res.Effects.Assigned[0].Token, 1, 6, returning("done"))
	}
	p.report()
}

// BenchmarkTick fires a timer without awaiters.
func BenchmarkTick(b *testing.B) {
	p := newBenchPart(b)
	for n := range b.N {
		p.apply(&commandv1.Entry{Commands: []*commandv1.Command{createPromiseCmd(fmt.Sprint("p", n), 1)}})
	}
	p.reset()
	for range (b.N + 255) / 256 {
		p.apply(&commandv1.Entry{Commands: []*commandv1.Command{tickCmd(256)}})
	}
	p.report()
}
