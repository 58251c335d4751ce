package addresses

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A partition has a bounded number of unblocks under way; all come in the end, each once.
func TestUnblocksUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n := c.start("n1")[0]
		p := newPartition(0)
		lead := n.lead(p)
		s := n.open(t, "g", "p")
		const all = 2*maxInFlight + 100
		var unblocks []Unblock
		for i := range all {
			unblocks = append(unblocks, p.settle(fmt.Sprint(i), "poll://uni@g/p"))
		}
		n.Applied(lead, nil, unblocks)
		seen := map[string]int{}
		for range 200 {
			n.mu.Lock()
			under := len(n.led[0].flying)
			n.mu.Unlock()
			if under > maxInFlight {
				t.Fatalf("%d unblocks are under way", under)
			}
			for _, m := range s.reads() {
				seen[m]++
			}
			pass(time.Second)
		}
		synctest.Wait()
		if len(seen) != all || p.kept() != 0 {
			t.Errorf("%d unblocks came of %d, %d are kept", len(seen), all, p.kept())
		}
		for m, times := range seen {
			if times != 1 {
				t.Errorf("%s came %d times", m, times)
			}
		}
	})
}

// Unblocks that are delivered shortly after each other are reported together.
func TestReportsAreGathered(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n := c.start("n1")[0]
		p := newPartition(0)
		lead := n.lead(p)
		s := n.open(t, "g", "p")
		for i := range 10 {
			n.Applied(lead, nil, []Unblock{p.settle(fmt.Sprint(i), "poll://uni@g/p")})
			s.mustRead(t, "at once", fmt.Sprintf("unblock %d", i))
			pass(reportDelay / 20)
		}
		pass(time.Second)
		if p.kept() != 0 || p.reports != 1 {
			t.Errorf("%d unblocks are kept after %d reports", p.kept(), p.reports)
		}
	})
}

// Many streams of a group that open at once cost a partition two offers.
func TestOffersArePaced(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n := c.start("n1")[0]
		p := newPartition(0)
		n.lead(p)
		for i := range 50 {
			n.open(t, "g", fmt.Sprint(i))
		}
		pass(time.Minute)
		if each := len(selections(group{ns, "g"})); p.reads != 2*each {
			t.Errorf("%d reads, %d of each offer", p.reads, each)
		}
	})
}

// Pending tasks of a process without a stream do not keep those of others from being offered.
func TestOffersSkipProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		n := c.start("n1")[0]
		p := newPartition(0)
		p.executes = []Execute{pendingTask("gone", "poll://uni@g/gone", 1), pendingTask("here", "poll://uni@g/p", 1)}
		n.lead(p)
		s := n.open(t, "g", "p")
		s.mustRead(t, "the offer", "execute here/1")
	})
}
