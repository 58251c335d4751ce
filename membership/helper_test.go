package membership

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"perdure/internal/freeport"
	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.WaitingTests(12)
	// memberlist ends a probe that is under way at its own time-out, and not when it shuts down.
	testkit.Main(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// quick is a timing for tests on one host: a death is noticed in about a second.
var quick = Timing{
	ProbeInterval:  200 * time.Millisecond,
	ProbeTimeout:   150 * time.Millisecond,
	GossipInterval: 20 * time.Millisecond,
	SyncInterval:   time.Second,
	DeadInterval:   time.Second,
	StreamTimeout:  2 * time.Second,
	RejoinMin:      50 * time.Millisecond,
	RejoinMax:      300 * time.Millisecond,
}

// calm is quick, but does not report a member dead that only had to wait for a busy machine: for tests in
// which none may be.
func calm(c *Config) {
	c.Timing.ProbeInterval, c.Timing.ProbeTimeout = time.Second, 500*time.Millisecond
}

// testTimeout bounds a test's wait for a state. It is long: the machine may be busy.
const testTimeout = time.Minute

// freeAddr is an address without a listener, which the system does not assign by chance.
func freeAddr(t *testing.T) string { return freeport.Membership.Addr(t) }

// eventually waits until look says true; it fails with what look said last.
func eventually(t *testing.T, what string, look func() (string, bool)) {
	t.Helper()
	testkit.EventuallySeen(t, testTimeout, what, look)
}

// book is a slog handler that keeps events.
type book struct {
	mu     sync.Mutex
	events []event
}

type event struct {
	name  string
	level slog.Level
	attrs map[string]string
}

func (b *book) Enabled(context.Context, slog.Level) bool { return true }
func (b *book) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *book) WithGroup(string) slog.Handler            { return b }
func (b *book) Handle(_ context.Context, r slog.Record) error {
	e := event{level: r.Level, attrs: map[string]string{"msg": r.Message}}
	r.Attrs(func(a slog.Attr) bool {
		e.attrs[a.Key] = a.Value.String()
		return true
	})
	e.name = e.attrs["event"]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
	return nil
}

// count is how many events there are of a name with these attributes, given as key, value, …
func (b *book) count(name string, attrs ...string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.events {
		ok := e.name == name
		for i := 0; i < len(attrs); i += 2 {
			ok = ok && e.attrs[attrs[i]] == attrs[i+1]
		}
		if ok {
			n++
		}
	}
	return n
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	for _, e := range b.events {
		if e.level > slog.LevelDebug {
			fmt.Fprintf(&s, "\n  %v %s %v", e.level, e.name, e.attrs)
		}
	}
	return s.String()
}

// node is a Gossip under test with its log.
type node struct {
	*Gossip
	log *book
	cfg Config
}

// start starts the node NAME as server NAME-1 on a free port; it is closed at the end of the test.
func start(t *testing.T, name string, change func(*Config)) *node {
	t.Helper()
	log := new(book)
	cfg := Config{
		BindAddr: "127.0.0.1:0",
		Self:     Member{NodeID: name, ServerID: name + "-1", ClusterID: "c1", PeerAddr: name + ":7402"},
		Logger:   slog.New(log),
		Timing:   quick,
	}
	if change != nil {
		change(&cfg)
	}
	g, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return &node{Gossip: g, log: log, cfg: cfg}
}

func join(others ...*node) func(*Config) {
	return func(c *Config) {
		for _, o := range others {
			c.Join = append(c.Join, o.Addr())
		}
	}
}

// sees waits until n's members are exactly these servers, given in order.
func (n *node) sees(t *testing.T, servers ...string) {
	t.Helper()
	want := strings.Join(servers, " ")
	eventually(t, fmt.Sprintf("%s to see [%s]", n.Self().ServerID, want), func() (string, bool) {
		var ids []string
		for _, m := range n.Members() {
			ids = append(ids, m.ServerID)
		}
		got := strings.Join(ids, " ")
		return fmt.Sprintf("[%s]; log:%s", got, n.log), got == want
	})
}

// member is what n knows of a server.
func (n *node) member(server string) (Member, bool) {
	for _, m := range n.Members() {
		if m.ServerID == server {
			return m, true
		}
	}
	return Member{}, false
}

// noLeaks fails if goroutines are left when the test and its later cleanups are done. Call it first, and not in a
// parallel test, which sees the others' goroutines.
func noLeaks(t *testing.T) {
	t.Helper()
	ours := func() (string, int) {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var left []string
		for _, g := range strings.Split(string(buf), "\n\n") {
			if strings.Contains(g, "perdure/membership.") && !strings.Contains(g, "testing.") ||
				strings.Contains(g, "hashicorp/memberlist") {
				left = append(left, g)
			}
		}
		return strings.Join(left, "\n\n"), len(left)
	}
	t.Cleanup(func() {
		eventually(t, "all goroutines to end", func() (string, bool) {
			stacks, n := ours()
			return stacks, n == 0
		})
	})
}
