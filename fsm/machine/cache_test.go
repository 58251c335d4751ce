package machine

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// asked counts what a machine asks of the state below it.
type asked struct {
	state.Reader
	scanned int
}

func (a *asked) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	return a.Reader.Scan(lower, upper, func(key, value []byte) bool {
		a.scanned++
		return fn(key, value)
	})
}

// Commands on an ended execution cost the same for any journal length.
func TestFinishedIsNotReadAgain(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited = true
	start := startCmd(w.request(), "e", "f", "in")
	w.do(start)
	v := w.only("w1", "f")
	w.commit(v, "child g; child g")
	children := w.take("w2", 2, "g")
	w.commit(v, strings.Repeat("step s -> x; ", 300)+"nothing")
	last := w.commitCmd(v, "return done")
	w.do(last)
	p := w.parts[0]
	below := &asked{Reader: p.state}
	m, err := New(p.cfg, below)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(cmd *commandv1.Command) *commandv1.Reply {
		t.Helper()
		p.index++
		res, err := m.Apply(p.index, &commandv1.Entry{TimeMs: w.now, Commands: []*commandv1.Command{cmd}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Replies[0]
	}
	for _, cmd := range []*commandv1.Command{
		start, startCmd(nil, "e", "f", "in"), startCmd(nil, "e", "f", "else"), signalCmd(nil, "e", "s", "x"), cancelCmd("e", "", 0), terminateCmd("e", ""),
		heartbeatCmd("w1", v.token), releaseCmd(v.token, "", 0), w.commitCmd(v, "step x"), settlePromiseCmd("e", resolve, ""),
		w.commitCmd(children[0], "return late"), terminateCmd("e:1", ""),
	} {
		below.scanned = 0
		if apply(cmd); below.scanned > 4 {
			t.Errorf("%v: %d entries were read", cmd, below.scanned)
		}
	}
	// The answer to the last commit is still complete.
	if got := apply(last).GetCommit(); got.NextChild != 302 || got.NextSeq != w.describe("e").JournalEvents || got.State != fulfilled {
		t.Errorf("answered %v", got)
	}
	if got := apply(settlePromiseCmd("e:5", resolve, "")); wire.ReplyError(got) == nil || wire.ReplyError(got).Reason != perdurev1.Reason_REASON_NOT_SETTLEABLE {
		t.Errorf("answered %v", got)
	}
}

// The cache is bounded by number and by what its executions hold, and what is not in it is read again.
func TestCacheIsBounded(t *testing.T) {
	for _, c := range []struct {
		name        string
		config      func(*Config)
		most, least int
	}{
		{"number", func(c *Config) { c.CachedExecutions = 3 }, 3, 3},
		{"bytes", func(c *Config) { c.CachedBytes = 10_000 }, 40, leastCached + 1},
		{"few bytes", func(c *Config) { c.CachedBytes = 1 }, leastCached, leastCached},
		{"not at all", func(*Config) {}, 200, 200},
	} {
		w := newWorld(t, 1, c.config)
		w.unaudited, w.effectsUnchecked = true, true
		cache := w.parts[0].m.cache
		for i := range 200 {
			w.do(startCmd(w.request(), fmt.Sprint("e", i), "f", ""))
			w.do(signalCmd(nil, fmt.Sprint("e", i), "s", strings.Repeat("x", 10_000)))
			bytes := 0
			for e := cache.order.Front(); e != nil; e = e.Next() {
				bytes += e.Value.(*execution).size
			}
			if len(cache.byKey) != cache.order.Len() || bytes != cache.bytes || cache.order.Len() > c.most {
				t.Fatalf("%s: %d executions by key, %d in order; %d bytes, counted %d", c.name, len(cache.byKey), cache.order.Len(), bytes, cache.bytes)
			}
		}
		if n := cache.order.Len(); n < c.least {
			t.Errorf("%s: only %d executions are cached", c.name, n)
		}
		for i := range 200 {
			if got := w.do(signalCmd(nil, fmt.Sprint("e", i), "s", "y")).GetSignal().DeliveryId; got != 2 {
				t.Fatalf("%s: delivery %d", c.name, got)
			}
			w.do(terminateCmd(fmt.Sprint("e", i), ""))
		}
		if cache.order.Len() != 0 || cache.bytes != 0 {
			t.Errorf("%s: %d executions that have ended are cached, %d bytes", c.name, cache.order.Len(), cache.bytes)
		}
		w.audit(w.parts[0])
	}
}
