package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// testNode is a ledger and the partition that its node leads.
type testNode struct {
	*Quota
	state *state.MemReader
	open  map[string]bool
	leads bool
	all   int // partitions of the cluster, of which it leads one; 0 is one
}

func (n *testNode) ID() uint32    { return 0 }
func (n *testNode) Serving() bool { return n.leads }

// Peek runs f twice, as on a state that changes under its first run.
func (n *testNode) Peek(f func(state.Reader) error) error { return errors.Join(f(n.state), f(n.state)) }

// apply does what the machine does with a start.
func (n *testNode) apply(ns, id string) {
	n.open[id] = true
	n.state.Apply([]state.Write{{Key: keys.VisibilityOf(ns, keys.Open, 1, id), Value: state.ListingOpen("f")}})
}

func (n *testNode) end(ns, id string) {
	delete(n.open, id)
	n.state.Apply([]state.Write{{Key: keys.VisibilityOf(ns, keys.Open, 1, id)}})
}

type stopped struct{ now time.Time }

func (c *stopped) Now() time.Time                                 { return c.now }
func (c *stopped) After(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }

// newTestNodes makes ledgers that hear from each other.
func newTestNodes(t interface{ Fatal(...any) }, clock *stopped, count int, rules ...string) (nodes []*testNode) {
	quotas, err := Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		n := &testNode{state: state.NewMemReader(), open: map[string]bool{}, leads: true}
		n.Quota = New(Options{Quotas: quotas, Clock: clock, Log: slog.New(slog.DiscardHandler), Lifetime: context.Background(),
			Replicas: func() []Replica {
				out := []Replica{n}
				for range n.all - 1 {
					out = append(out, &testNode{})
				}
				return out
			},
			Others: func(context.Context) map[string]*Use {
				out := map[string]*Use{}
				for j, o := range nodes {
					if j != i {
						use := &Use{Leads: o.leads, Namespaces: map[string]*perdurev1.NamespaceUse{}}
						for _, u := range o.Use() {
							use.Namespaces[u.Namespace] = u
						}
						out[fmt.Sprint(j)] = use
					}
				}
				return out
			}})
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.Exchange(context.Background())
	}
	return nodes
}

func startCmd(ns, id string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{Id: id}}}
}

func never() bool { return false }

// However starts, ends and exchanges are interleaved, the nodes together admit no more than the quota, and a node alone in the end all of it but one for each other.
func TestOpenQuota(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const limit = 10
		count := rapid.IntRange(1, 4).Draw(rt, "nodes")
		nodes := newTestNodes(rt, &stopped{time.UnixMilli(1)}, count, "a=open:10")
		var flights []func()
		id := 0
		open := func() (n int) {
			for _, x := range nodes {
				n += len(x.open)
			}
			return n
		}
		start := func(n *testNode) bool {
			id++
			name := fmt.Sprint("e", id)
			charge, refused := n.Admit(startCmd("a", name), never)
			if refused != nil {
				if refused.Reason != perdurev1.Reason_REASON_QUOTA_EXCEEDED || refused.Meta["quota"] != "open" || refused.Meta["allowed"] != "10" {
					rt.Fatalf("refused with %v, %v", refused, refused.Meta)
				}
				return false
			}
			flights = append(flights, func() { n.apply("a", name); charge.Release() })
			return true
		}
		land := func() {
			for _, f := range flights {
				f()
			}
			flights = nil
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			n := rapid.SampledFrom(nodes).Draw(rt, "node")
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				n.Exchange(context.Background())
			case 1:
				land()
			case 2:
				for id := range n.open {
					n.end("a", id)
					break
				}
			default:
				start(n)
			}
			if open()+len(flights) > limit+count-1 {
				rt.Fatalf("%d are open and %d in flight, of %d", open(), len(flights), limit)
			}
		}
		land()
		for range 40 {
			for start(nodes[0]) {
				land()
			}
			for _, n := range nodes {
				n.Exchange(context.Background())
			}
		}
		if got := open(); got < limit-count+1 || got > limit+count-1 {
			rt.Fatalf("%d are open at last, of %d", got, limit)
		}
	})
}

// What finishes work, repeats a start or is of another namespace is never refused; each quota names itself.
func TestAdmit(t *testing.T) {
	clock := &stopped{time.UnixMilli(1)}
	n := newTestNodes(t, clock, 1, "a=open:1", "b=bytes:200B", "c=starts:2/s")[0]
	admit := func(cmd *commandv1.Command, exists bool, quota string) {
		t.Helper()
		charge, refused := n.Admit(cmd, func() bool { return exists })
		charge.Release()
		if got := ""; refused != nil {
			if got = refused.Meta["quota"]; got != quota {
				t.Errorf("refused by %q, want %q: %v", got, quota, refused)
			}
		} else if quota != "" {
			t.Errorf("admitted, want a refusal by %q", quota)
		}
	}
	admit(startCmd("a", "1"), false, "")
	n.apply("a", "1")
	admit(startCmd("a", "2"), false, "open")
	admit(startCmd("a", "1"), true, "")
	admit(startCmd("d", "1"), false, "")
	commit := &commandv1.Command{Namespace: "a", Kind: &commandv1.Command_Commit{Commit: &perdurev1.Commit{}}}
	admit(commit, false, "")
	n.end("a", "1")
	admit(startCmd("a", "2"), false, "")

	big := startCmd("b", "1")
	big.GetStart().Input = make([]byte, 300)
	admit(big, false, "")
	admit(startCmd("b", "2"), false, "bytes")
	promise := &commandv1.Command{Namespace: "b", Kind: &commandv1.Command_CreatePromise{CreatePromise: &perdurev1.CreatePromiseRequest{}}}
	admit(promise, false, "bytes")
	admit(&commandv1.Command{Namespace: "b", Kind: &commandv1.Command_ImportHistory{ImportHistory: &perdurev1.ImportHistoryRequest{}}}, false, "bytes")
	n.measureSpace(n.spaces["b"]) // nothing of it was stored
	admit(promise, false, "")
	n.state.Apply([]state.Write{{Key: keys.Of(keys.Journal, "b", "1"), Value: make([]byte, 100)}, {Key: keys.Of(keys.Header, "b", "1"), Value: make([]byte, 100)},
		{Key: keys.Of(keys.Header, "bb", "1"), Value: make([]byte, 100)}})
	n.measureSpace(n.spaces["b"])
	admit(promise, false, "bytes")

	admit(startCmd("c", "1"), false, "")
	admit(startCmd("c", "2"), false, "starts")
	clock.now = clock.now.Add(10 * time.Second)
	for range 2 {
		admit(startCmd("c", "3"), false, "")
	}
	admit(startCmd("c", "4"), false, "starts")
	if use := n.Use(); len(use) != 3 || use[0].Open != 1 || use[0].Refused != 1 || use[2].Refused != 2 {
		t.Errorf("used: %v", use)
	}
}

// A namespace that goes on asking gets one error, and another one when the figures in it have changed.
func TestRefusedAgain(t *testing.T) {
	clock := &stopped{time.UnixMilli(1)}
	n := newTestNodes(t, clock, 1, "a=open:1", "starts:1/s", "bytes:10KiB")[0]
	refusal := func(cmd *commandv1.Command) *api.Error {
		t.Helper()
		_, refused := n.Admit(cmd, func() bool { return false })
		if refused == nil || refused.EncodedStatus() == nil {
			t.Fatalf("%v: not refused, or not sealed", refused)
		}
		return refused
	}
	if _, refused := n.Admit(startCmd("a", "1"), nil); refused != nil {
		t.Fatal(refused)
	}
	if starts := refusal(startCmd("a", "2")); starts.Meta["quota"] != "starts" {
		t.Errorf("refused by %q, want starts", starts.Meta["quota"])
	}
	clock.now = clock.now.Add(time.Second)
	open := refusal(startCmd("a", "2"))
	if open.Meta["quota"] != "open" {
		t.Errorf("refused by %q, want open", open.Meta["quota"])
	}
	if again := refusal(startCmd("a", "3")); again != open {
		t.Errorf("refused with %p and %p, which both say %v", open, again, again)
	}
	s := n.spaces["a"]
	s.openElsewhere++
	if more := refusal(startCmd("a", "2")); more.Meta["used"] != "2" || open.Meta["used"] != "1" {
		t.Errorf("used %s, then %s; want 1 and 2", open.Meta["used"], more.Meta["used"])
	}
	s.added += 20_000
	if bytes := refusal(startCmd("a", "2")); bytes.Meta["quota"] != "bytes" {
		t.Errorf("refused by %q, want bytes", bytes.Meta["quota"])
	}
}

// However long a namespace has started nothing, few starts are admitted at once, and a second admits the rate.
func TestStartsAtOnce(t *testing.T) {
	for _, c := range []struct {
		rule                  string
		nodes, once, inSecond int
	}{{"a=starts:2/s", 1, 2, 2}, {"a=starts:50/s", 1, 10, 50}, {"a=starts:1000/s", 1, 100, 1000}, {"a=starts:60/s", 2, 10, 60}} {
		clock := &stopped{time.UnixMilli(1)}
		nodes := newTestNodes(t, clock, c.nodes, c.rule)
		for _, n := range nodes {
			n.all = c.nodes
		}
		admitted := func() (most int) {
			for _, n := range nodes {
				for {
					if _, refused := n.Admit(startCmd("a", "1"), never); refused != nil {
						break
					}
					most++
				}
			}
			return most
		}
		admitted()
		clock.now = clock.now.Add(time.Hour)
		if got := admitted(); got != c.once {
			t.Errorf("%s on %d nodes: %d at once, want %d", c.rule, c.nodes, got, c.once)
		}
		got := 0
		for range 100 {
			clock.now = clock.now.Add(10 * time.Millisecond)
			got += admitted()
		}
		if got < c.inSecond-c.nodes || got > c.inSecond+c.nodes {
			t.Errorf("%s on %d nodes: %d in a second, want %d", c.rule, c.nodes, got, c.inSecond)
		}
	}
}

// The namespaces that a node watches are bounded.
func TestNamespacesBounded(t *testing.T) {
	clock := &stopped{time.UnixMilli(1)}
	n := newTestNodes(t, clock, 1, "*=open:1")[0]
	for i := range maxNamespaces + 10 {
		clock.now = clock.now.Add(time.Second)
		if _, refused := n.Admit(startCmd(fmt.Sprint(i), "1"), never); refused != nil {
			t.Fatal(refused)
		}
	}
	if len(n.spaces) != maxNamespaces || n.spaces["9"] != nil || n.spaces["10"] == nil {
		t.Errorf("%d namespaces are watched", len(n.spaces))
	}
}

// A node takes its part of what is left. What another may still use stays with that one, and starts under way are counted.
func TestParts(t *testing.T) {
	nodes := newTestNodes(t, &stopped{time.UnixMilli(1)}, 2, "a=open:10")
	fill := func(n *testNode) (admitted int) {
		for ; admitted < 20; admitted++ {
			if _, refused := n.Admit(startCmd("a", "e"), never); refused != nil { // and its outcome stays unknown
				break
			}
		}
		return admitted
	}
	exchange := func() {
		for _, n := range nodes {
			n.Exchange(t.Context())
		}
	}
	for i, n := range nodes { // each has heard of the namespace at the other
		if _, refused := n.Admit(startCmd("a", fmt.Sprint(i)), never); refused != nil {
			t.Fatal(refused)
		}
	}
	exchange()
	first := 1 + fill(nodes[0])
	nodes[0].Exchange(t.Context())
	first += fill(nodes[0])
	if second := 1 + fill(nodes[1]); first+second > 10 || first+second < 9 {
		t.Errorf("%d and %d of 10 were admitted", first, second)
	}
}

// A node that begins work in a namespace without having heard what the others use takes no more than they keep for it. Once it has
// exchanged, it keeps nothing that it does not use, but for one.
func TestFirstUse(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 10, 11, 100} {
		for count := 1; count <= 4; count++ {
			nodes := newTestNodes(t, &stopped{time.UnixMilli(1)}, count, fmt.Sprintf("a=open:%d", limit))
			fill := func(n *testNode) (admitted int) {
				for ; admitted <= limit; admitted++ {
					if _, refused := n.Admit(startCmd("a", "e"), never); refused != nil { // and its outcome stays unknown
						break
					}
				}
				return admitted
			}
			admitted := 0
			for _, n := range nodes { // the others have not exchanged
				for range 3 {
					admitted += fill(n)
					n.Exchange(t.Context())
				}
			}
			if most := limit + count - 1; admitted > most || admitted < limit {
				t.Errorf("%d nodes admitted %d of %d", count, admitted, limit)
			}

			nodes = newTestNodes(t, &stopped{time.UnixMilli(1)}, count, fmt.Sprintf("a=open:%d", limit))
			admitted = 0
			for range 80 { // work begins at one node only
				admitted += fill(nodes[0])
				for _, n := range nodes {
					n.Exchange(t.Context())
				}
			}
			if least := limit - count + 1; admitted > limit || admitted < least {
				t.Errorf("one of %d nodes admitted %d of %d", count, admitted, limit)
			}
		}
	}
}
