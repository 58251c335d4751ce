package addresses

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	commandv1 "perdure/api/command/v1"
)

// A stream at any node gets the execute of a task whose leader is elsewhere.
func TestAnyNodeServesAnyStream(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2", "n3")
		lead := nodes[0].lead(newPartition(0))
		s := nodes[1].open(t, "g", "p")
		other := nodes[2].open(t, "other", "p")
		nodes[0].Applied(lead, []Execute{pendingTask("a", "poll://any@g", 0), pendingTask("b", "poll://any@g/p", 3), pendingTask("c", "poll://uni@g/p", 1),
			pendingTask("d", "poll://any@g/gone", 1), pendingTask("e", "poll://uni@g/gone", 1), pendingTask("f", "poll://any@nobody", 1),
			{Namespace: "tenant", ID: "x", Address: "poll://any@g"}, pendingTask("g", "gcps://topic", 1)}, nil)
		s.mustRead(t, "after the entry", "execute a/0", "execute b/3", "execute c/1", "execute d/1")
		other.mustRead(t, "a stream of another group")
	})
}

// The leader prefers streams of its own node, and takes turns among them.
func TestOwnNodeFirst(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2")
		lead := nodes[0].lead(newPartition(0))
		there := nodes[1].open(t, "g", "there")
		first, second := nodes[0].open(t, "g", "first"), nodes[0].open(t, "g", "second")
		for i := range 4 {
			nodes[0].Applied(lead, []Execute{pendingTask(fmt.Sprint(i), "poll://any@g", 0)}, nil)
		}
		a, b := first.reads(), second.reads()
		if len(a) != 2 || len(b) != 2 {
			t.Errorf("the streams of the leader's node got %q and %q of four executes", a, b)
		}
		there.mustRead(t, "while the leader's node has streams")
		nodes[0].Applied(lead, []Execute{pendingTask("x", "poll://any@g/there", 0)}, nil)
		there.mustRead(t, "by its process", "execute x/0")
	})
}

// Of several streams of one process the newest gets the messages, at whichever node; when it ends, the one before.
func TestNewestStream(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2")
		lead := nodes[0].lead(newPartition(0))
		send := func(id string) {
			nodes[0].Applied(lead, []Execute{pendingTask(id, "poll://uni@g/p", 0)}, nil)
		}
		oldest := nodes[0].open(t, "g", "p")
		pass(time.Second)
		older := nodes[1].open(t, "g", "p")
		newest := nodes[1].open(t, "g", "p") // within the same millisecond
		send("a")
		newest.mustRead(t, "the newest", "execute a/0")
		newest.Close()
		synctest.Wait()
		send("b")
		older.mustRead(t, "the newest has ended", "execute b/0")
		older.Close()
		synctest.Wait()
		send("c")
		oldest.mustRead(t, "both others have ended", "execute c/0")
		pass(time.Second)
		moved := nodes[1].open(t, "g", "p")
		send("d")
		moved.mustRead(t, "it has moved", "execute d/0")
		oldest.mustRead(t, "the process has a newer stream")
	})
}

// An unblock stays in the state until it was written to a stream: of whichever node, whenever it opens.
func TestUnblockIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2", "n3")
		p := newPartition(0)
		lead := nodes[0].lead(p)
		nodes[0].Applied(lead, nil, []Unblock{p.settle("a", "poll://uni@g/p")})
		wrong := nodes[1].open(t, "g", "q")
		pass(time.Minute)
		wrong.mustRead(t, "an address of another process")
		s := nodes[2].open(t, "g", "p")
		taken := s.Take()
		if len(taken) != 1 || text(taken[0].Message) != "unblock a" || p.kept() != 1 {
			t.Fatalf("the new stream took %d messages, and %d unblocks are kept before it was written", len(taken), p.kept())
		}
		pass(time.Hour)
		if more := s.Take(); len(more) > 0 || p.kept() != 1 {
			t.Errorf("while it is written, %d more messages come, and %d are kept", len(more), p.kept())
		}
		s.Written(taken[0], true)
		pass(reportDelay)
		if p.kept() != 0 {
			t.Errorf("%d unblocks are kept after it was written", p.kept())
		}
		pass(time.Hour)
		s.mustRead(t, "afterwards")
	})
}

// An unblock that comes while the stream is open is sent at once, and once.
func TestUnblockOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2")
		p := newPartition(0)
		lead := nodes[0].lead(p)
		s := nodes[1].open(t, "g", "p")
		u := p.settle("a", "poll://uni@g/p")
		nodes[0].Applied(lead, nil, []Unblock{u})
		nodes[0].Applied(lead, nil, []Unblock{u})
		nodes[0].open(t, "g", "another") // the group is offered what waits
		pass(time.Minute)
		s.mustRead(t, "one effect", "unblock a")
		p.settle("b", "poll://uni@g/p")
		p.gone["b"] = true
		nodes[0].open(t, "g", "third")
		pass(time.Minute)
		if s.mustRead(t, "of a promise that was deleted"); p.kept() != 0 {
			t.Errorf("%d unblocks are kept", p.kept())
		}
	})
}

// An unblock that a stream took and did not write goes to the next stream of the address, as does one whose node is
// lost. So does one whose leader is lost between the settlement and the delivery.
func TestUnblockIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2", "n3")
		p := newPartition(0)
		lead := nodes[0].lead(p)
		s := nodes[1].open(t, "g", "p")
		nodes[0].Applied(lead, nil, []Unblock{p.settle("a", "poll://uni@g/p")})
		synctest.Wait()
		if len(s.Take()) != 1 {
			t.Fatal("the stream got nothing")
		}
		s.Close()
		s = nodes[1].open(t, "g", "p")
		pass(time.Second)
		if len(s.Take()) != 1 {
			t.Fatal("the stream that the client opened after it got nothing")
		}
		nodes[1].stop() // before it was written
		moved := nodes[2].open(t, "g", "p")
		pass(time.Second)
		moved.mustRead(t, "the node with the stream is lost", "unblock a")
		pass(reportDelay)
		if p.kept() != 0 {
			t.Errorf("%d unblocks are kept", p.kept())
		}
		p.settle("b", "poll://uni@g/p") // its effect finds no leadership
		nodes[0].Revoked(lead)
		nodes[2].lead(p)
		moved.mustRead(t, "under the next leader", "unblock b")
	})
}

// A report that fails is repeated; meanwhile the unblock is not sent again.
func TestReportIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1")
		p := newPartition(0)
		lead := nodes[0].lead(p)
		s := nodes[0].open(t, "g", "p")
		p.broken = true
		nodes[0].Applied(lead, nil, []Unblock{p.settle("a", "poll://any@g")})
		s.mustRead(t, "the first time", "unblock a")
		nodes[0].open(t, "g", "q")
		pass(time.Minute)
		s.mustRead(t, "while it cannot be reported")
		p.mu.Lock()
		p.broken = false
		p.mu.Unlock()
		pass(time.Minute)
		if p.kept() != 0 || p.reports < 3 {
			t.Errorf("%d unblocks are kept after %d reports", p.kept(), p.reports)
		}
	})
}

// When a stream opens, the leaders offer it the pending tasks of its group, page by page.
func TestPendingTasksAreOffered(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2")
		p := newPartition(0)
		const tasks = 2*offerPage + 50
		for i := range tasks {
			p.executes = append(p.executes, pendingTask(fmt.Sprint(i), []string{"poll://any@g", "poll://any@g/gone"}[i%2], 1))
		}
		p.executes = append(p.executes, pendingTask("other", "poll://any@gg", 1), pendingTask("uni", "poll://uni@g/gone", 1))
		nodes[0].lead(p)
		pass(time.Minute)
		if p.reads != 0 {
			t.Errorf("%d reads while no stream is open", p.reads)
		}
		s := nodes[1].open(t, "g", "p")
		if n := len(s.reads()); n != offerPage {
			t.Errorf("%d executes came at once, a page has %d", n, offerPage)
		}
		n := offerPage
		for range 10 {
			pass(offerPause)
			n += len(s.reads())
		}
		if n != tasks {
			t.Errorf("%d executes were offered of %d", n, tasks)
		}
	})
}

// A stream that is not read holds no more than its bounds. Executes beyond them are dropped; unblocks come later.
func TestSlowReader(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		nodes := c.start("n1", "n2")
		p := newPartition(0)
		lead := nodes[0].lead(p)
		s := nodes[1].open(t, "g", "p")
		for i := range 20 {
			nodes[0].Applied(lead, []Execute{pendingTask("same", "poll://any@g", uint64(i))}, nil)
			synctest.Wait()
		}
		s.mustRead(t, "executes of one task", "execute same/19")
		for i := range 2 * streamMessages {
			nodes[0].Applied(lead, []Execute{pendingTask(fmt.Sprint(i), "poll://any@g", 1)}, []Unblock{p.settle(fmt.Sprint("u", i), "poll://uni@g/p")})
			synctest.Wait()
		}
		pass(time.Second)
		seen := map[string]bool{}
		for range 100 {
			got := s.reads()
			if len(got) > streamMessages {
				t.Fatalf("%d messages waited", len(got))
			}
			for _, m := range got {
				seen[m] = true
			}
			pass(retryMax + time.Second)
		}
		unblocks := 0
		for m := range seen {
			if strings.HasPrefix(m, "unblock") {
				unblocks++
			}
		}
		if unblocks != 2*streamMessages || p.kept() != 0 {
			t.Errorf("%d of %d unblocks came, and %d are kept", unblocks, 2*streamMessages, p.kept())
		}
		nodes[1].mu.Lock()
		defer nodes[1].mu.Unlock()
		if nodes[1].bytes != 0 {
			t.Errorf("%d bytes count as waiting", nodes[1].bytes)
		}
	})
}

// What waits for all streams of a node has one bound.
func TestNodeBytes(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n := c.start("n1")[0]
		large := strings.Repeat("x", 4<<20)
		var sum int
		for i := range 40 {
			s := n.open(t, "g", fmt.Sprint(i))
			n.mu.Lock()
			for s.put(&Queued{Message: &commandv1.AddressMessage{Namespace: ns, Address: large}}) {
				sum++
			}
			if n.bytes > nodeBytes || s.bytes > streamBytes {
				t.Errorf("%d bytes wait, %d of one stream", n.bytes, s.bytes)
			}
			n.mu.Unlock()
		}
		if sum < 10 {
			t.Errorf("%d messages of 4 MiB were queued", sum)
		}
	})
}

// A node refuses a stream beyond its bound, a name that no address can have, and every stream once it drains.
func TestOpenIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n := c.start("n1")[0]
		n.env.MaxStreams = 3
		first := n.open(t, "g", "1")
		n.open(t, "g", "2")
		n.open(t, "g", "3")
		if _, err := n.Open(ns, "g", "4"); !errors.Is(err, ErrTooManyStreams) {
			t.Errorf("the fourth stream of three: %v", err)
		}
		for _, bad := range [][2]string{{"", "p"}, {"g", ""}, {"a/b", "p"}, {"g", "a\nb"}, {"g\x00", "p"}, {"\xff", "p"}, {strings.Repeat("g", maxName+1), "p"}} {
			if _, err := n.Open(ns, bad[0], bad[1]); !errors.Is(err, ErrName) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		first.Close()
		first.Close() // changes nothing
		s := n.open(t, "g", "5")
		n.Drain()
		<-s.Done()
		if _, err := n.Open(ns, "g", "6"); !errors.Is(err, ErrDraining) {
			t.Errorf("of a node that drains: %v", err)
		}
	})
}

// pushes is a Push that fails for hosts until they are up.
type pushes struct {
	mu   sync.Mutex
	down map[string]bool
	sent map[string][]time.Duration
	at   time.Time
}

func (p *pushes) push(m *commandv1.AddressMessage, over func(bool)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	host := parse(m.Address).host
	p.sent[host] = append(p.sent[host], time.Since(p.at))
	ok := !p.down[host]
	go over(ok)
	return true
}

// to returns when messages were posted to a host.
func (p *pushes) to(host string) []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent[host])
}

// A message for an HTTP address is pushed. An unblock that the target does not accept is pushed again, with pauses that
// double for each host; an execute is not.
func TestPush(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n := c.start("n1")[0]
		p := newPartition(0)
		lead := n.lead(p)
		posts := &pushes{down: map[string]bool{"down:80": true}, sent: map[string][]time.Duration{}, at: time.Now()}
		n.Applied(lead, []Execute{pendingTask("a", "http://up", 1)}, []Unblock{p.settle("early", "https://up/x")})
		n.ServePush(posts.push)
		pass(reportDelay)
		if p.kept() != 0 || len(posts.to("up")) != 1 {
			t.Errorf("%d unblocks are kept after %v", p.kept(), posts.to("up"))
		}
		n.Applied(lead, []Execute{pendingTask("b", "http://down:80/b", 1)}, []Unblock{p.settle("u", "http://down:80/u"), p.settle("v", "http://up/v")})
		pass(reportDelay)
		if p.kept() != 1 || len(posts.to("up")) != 2 || len(posts.to("down:80")) != 2 {
			t.Errorf("%d unblocks are kept after %v and %v", p.kept(), posts.to("up"), posts.to("down:80"))
		}
		pass(10 * time.Minute)
		again := posts.to("down:80")[2:]
		if len(again) < 15 || len(again) > 30 {
			t.Errorf("pushed again at %v", again)
		}
		for i := 1; i < len(again); i++ {
			if pause, before := again[i]-again[i-1], again[max(i-1, 1)]-again[max(i-2, 0)]; pause < before || pause > retryMax+offerEvery {
				t.Errorf("pushed again at %v", again)
			}
		}
		posts.mu.Lock()
		posts.down = nil
		posts.mu.Unlock()
		pass(retryMax + time.Second)
		if p.kept() != 0 {
			t.Errorf("%d unblocks are kept although the target accepts", p.kept())
		}
	})
}
