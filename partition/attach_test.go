package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/workers"
)

// crew runs workers at the nodes of a cluster and counts what they receive: never more tasks than their
// capacity, and each task once. Without slack that holds only while no leader is deposed, so timeouts must
// not act.
type crew struct {
	t    *testing.T
	ctx  context.Context
	all  []*member
	wg   sync.WaitGroup
	stop context.CancelFunc

	mu       sync.Mutex
	finished map[string]string // task → worker
	// slack is how many tasks beyond its capacity a worker may receive: those of a leader that went before it
	// could report them.
	slack int
	// tolerant: a task may be delivered twice, when its worker has died.
	tolerant bool
}

func newCrew(t *testing.T, all []*member) *crew {
	c := &crew{t: t, all: all, finished: map[string]string{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { c.stop(); c.wg.Wait() })
	return c
}

// work serves f at a node until the crew stops or the stream ends.
func (c *crew) work(at *member, id string, capacity int) *workers.Worker {
	w := at.Dispatcher().Attach(spec(id, capacity, "f"))
	r := at.router
	var mu sync.Mutex
	busy, announced := 0, capacity // its tasks, and the capacity that its node should know
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		defer w.Detach()
		var turns sync.WaitGroup
		defer turns.Wait()
		for {
			d, ok := w.Next(c.ctx)
			if !ok {
				return
			}
			if d.Cancelling {
				continue
			}
			if d.Task == nil || d.Task.Token.Id != d.Token.Id || d.Task.Function != "f" {
				c.t.Errorf("%s receives %v with the task %v", id, d.Token, d.Task)
			}
			mu.Lock()
			if busy++; busy > capacity+c.slack {
				c.t.Errorf("%s received %d tasks, its capacity is %d", id, busy, capacity)
			}
			announced = max(announced-1, 0)
			mu.Unlock()
			turns.Add(1)
			go func() {
				defer turns.Done()
				c.turn(r, w, d.Token)
				w.Finished(d.Token)
				mu.Lock()
				defer mu.Unlock()
				busy--
				more := max(capacity-busy-announced, 0)
				announced += more
				w.AddCapacity(more)
			}()
		}
	}()
	return w
}

func (c *crew) turn(r *Router, w *workers.Worker, token *perdurev1.TaskToken) {
	_, err := r.Propose(c.ctx, commitCmd("end of "+token.Id, &perdurev1.Commit{Task: token, KnownSeq: 1, Events: []*perdurev1.Event{returnEvent("done")}}))
	if err != nil {
		if c.ctx.Err() == nil && !c.tolerant {
			c.t.Errorf("commit of %v by %s: %v", token, w.ID, err)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := c.finished[token.Id]; by != "" && !c.tolerant {
		c.t.Errorf("%s was given to %s after %s", token.Id, w.ID, by)
	}
	c.finished[token.Id] = w.ID
}

func (c *crew) done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.finished)
}

func (c *crew) wait(n int) {
	c.t.Helper()
	waitFor(c.t, fmt.Sprintf("%d tasks to be finished", n), func() bool { return c.done() >= n }, func() string {
		out := fmt.Sprint(c.done())
		for _, m := range c.all {
			if m.Node != nil {
				out += " " + m.cfg.NodeID + ": " + m.dispatch.String()
			}
		}
		return out
	})
}

// settled waits until a worker has all its capacity again, and no unit is counted twice.
func settled(t *testing.T, at *member, w *workers.Worker, want int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s to have capacity for %d", w.ID, want), func() bool { return w.Capacity() == want }, func() string { return at.dispatch.String() })
}

func startIn(t testing.TB, r *Router, p uint32, name string) string {
	t.Helper()
	id := idIn(r, p, name)
	must(t, r, startCmd("start "+id, id, "f", ""))
	return id
}

// TestAttachServesAllPartitions: a worker at any node gets the tasks of every partition, with a large
// capacity and with a capacity of one.
func TestAttachServesAllPartitions(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 4, neverActs)
	for k, at := range all {
		for _, size := range []int{10, 1} {
			c := newCrew(t, all)
			w := c.work(at, fmt.Sprintf("w%d-%d", k, size), size)
			n := 0
			for round := range 5 {
				for p := range uint32(4) {
					startIn(t, all[(k+round)%3].router, p, fmt.Sprintf("x%d-%d-%d-%d", k, size, round, p))
					n++
				}
				if round%2 == 0 {
					c.wait(n)
				}
			}
			c.wait(n)
			settled(t, at, w, size)
			c.stop()
			c.wg.Wait()
		}
	}
}

// TestAttachIsPrompt: a worker with a capacity of one serves partitions of all nodes in turn without delay.
func TestAttachIsPrompt(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	c := newCrew(t, all)
	w := c.work(all[0], "w", 1)
	n := 0
	one := func(p uint32) {
		startIn(t, all[p].router, p, fmt.Sprint("x", n))
		n++
		c.wait(n)
	}
	for p := range uint32(3) {
		one(p)
	}
	var took []time.Duration
	for range 20 {
		for p := range uint32(3) {
			began := time.Now()
			one(p)
			took = append(took, time.Since(began))
		}
	}
	// A busy machine may delay some; a task that waits for a poll is delayed each time, and begins just after one.
	slices.Sort(took)
	half := took[len(took)/2]
	t.Logf("half of 60 tasks took %v or less each, the longest %v", half, took[len(took)-1])
	if half > workers.SurveyEvery*3/4 {
		t.Errorf("half of 60 tasks took more than %v each", half)
	}
	settled(t, all[0], w, 1)
}

// TestAttachTwoNodes: workers at different nodes share what all partitions have.
func TestAttachTwoNodes(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	c := newCrew(t, all)
	a, b := c.work(all[0], "a", 3), c.work(all[1], "b", 3)
	const many = 120
	for k := range many {
		startIn(t, all[k%3].router, uint32(k%3), fmt.Sprint("x", k))
	}
	c.wait(many)
	by := map[string]int{}
	c.mu.Lock()
	for _, w := range c.finished {
		by[w]++
	}
	c.mu.Unlock()
	if by["a"] < many/10 || by["b"] < many/10 {
		t.Errorf("they have finished %v", by)
	}
	settled(t, all[0], a, 3)
	settled(t, all[1], b, 3)
}

// TestAttachConservesCapacity: while workers come and go at any node, none receives more tasks than its
// capacity. Every task is served, and in the end all capacity is free.
func TestAttachConservesCapacity(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 4, neverActs)
	rng := rand.New(rand.NewPCG(4, 2))
	c := newCrew(t, all)
	type one struct {
		at       *member
		w        *workers.Worker
		capacity int
	}
	var workers []one
	const total = 600
	for k := range total {
		if k%60 == 0 {
			at, size := all[rng.IntN(3)], 1+rng.IntN(5)
			workers = append(workers, one{at, c.work(at, fmt.Sprint("w", k), size), size})
		}
		id := fmt.Sprint("x", k)
		must(t, all[rng.IntN(3)].router, startCmd("start "+id, id, "f", ""))
	}
	c.wait(total)
	for _, w := range workers {
		settled(t, w.at, w.w, w.capacity)
	}
}

// TestAttachCancelling: a cancel reaches a worker at another node than the leader.
func TestAttachCancelling(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	for p := range uint32(3) {
		w := all[0].Dispatcher().Attach(spec(fmt.Sprint("w", p), 3, "f"))
		id := startIn(t, all[0].router, p, "x")
		token := deliver(t, w)
		must(t, all[0].router, cancelCmd(id, 60_000))
		if d, ok := w.Next(bg(t)); !ok || !d.Cancelling || d.Token.Id != id || d.Token.Version != token.Version {
			t.Errorf("partition %d: got %+v, %v", p, d, ok)
		}
		w.Detach()
	}
}

// later waits until a node's clock shows a later millisecond.
func later(t *testing.T, at *member) {
	t.Helper()
	now := at.clock.Now().UnixMilli()
	waitFor(t, "a millisecond to pass", func() bool { return at.clock.Now().UnixMilli() > now }, func() string { return "" })
}

// TestAttachSuperseded: a later stream of a worker ends the earlier one, at whatever node.
func TestAttachSuperseded(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	var former *workers.Worker
	for k := range 6 {
		at := all[k%3]
		later(t, at) // their clocks may read the same; a real worker needs longer
		w := at.Dispatcher().Attach(spec("w", 2, "f"))
		defer w.Detach()
		if former != nil {
			if d, ok := former.Next(bg(t)); ok {
				t.Fatalf("the earlier stream receives %+v", d)
			}
		}
		for p := range uint32(3) {
			startIn(t, at.router, p, fmt.Sprintf("x%d", k))
			token := deliver(t, w)
			finish(t, at.router, token)
			w.Finished(token)
			w.AddCapacity(1)
		}
		settled(t, at, w, 2)
		former = w
	}
}

// move has a partition's leader hand it on, and waits for another to serve.
func move(t *testing.T, all []*member, p uint32) {
	t.Helper()
	from := leaderOf(t, all, p)
	waitFor(t, "another leader", func() bool {
		for _, m := range all {
			if m.Node == nil || !m.router.slots[p].Load().Serving() {
				continue
			}
			if m != from {
				return true
			}
			_ = m.router.slots[p].Load().Raft().LeadershipTransfer().Error() // it is asked until it does
		}
		return false
	}, func() string { return from.cfg.NodeID })
}

// TestAttachLeaderMoves: leaders change while workers hold sent and unsent tasks. No task is delivered twice
// or lost, and no capacity is lost.
func TestAttachLeaderMoves(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	at := all[0]
	w := at.Dispatcher().Attach(spec("w", 20, "f"))
	defer w.Detach()
	want := map[string]bool{}
	for round := range 6 {
		for p := range uint32(3) {
			want[startIn(t, at.router, p, fmt.Sprintf("x%d", round))] = true
		}
		if round%2 == 0 {
			// Some tasks are delivered, others wait to be.
			d, ok := w.Next(bg(t))
			if !ok || !want[d.Token.Id] {
				t.Fatalf("received %+v, %v", d, ok)
			}
			delete(want, d.Token.Id)
		}
		move(t, all, uint32(round%3))
	}
	for len(want) > 0 {
		token := deliver(t, w)
		if !want[token.Id] {
			t.Fatalf("%s is delivered twice", token.Id)
		}
		delete(want, token.Id)
	}
	settled(t, at, w, 2)
}

// TestAttachUnderUnrest: leaders move all the time. Every task is served, and all capacity is free in the
// end.
func TestAttachUnderUnrest(t *testing.T) {
	t.Parallel() // it waits most of the time
	// A transfer that the library gives up, as it does after an election time-out, may leave a group that refuses
	// writes (see handAgain); here it is asked again at once.
	all := newClusterWith(t, 3, neverActs)
	c := newCrew(t, all)
	c.slack, c.tolerant = 100, true
	var workers []*workers.Worker
	for k, at := range all {
		workers = append(workers, c.work(at, fmt.Sprint("w", k), 1+2*k))
	}
	const rounds, each = 10, 30
	for round := range rounds {
		for k := range each {
			id := fmt.Sprintf("x%d-%d", round, k)
			must(t, all[k%3].router, startCmd("start "+id, id, "f", ""))
			if k == each/2 {
				move(t, all, uint32(round%3))
			}
		}
	}
	c.wait(rounds * each)
	for k, w := range workers {
		settled(t, all[k], w, 1+2*k)
	}
}

// TestAttachNodeDies: a node goes that leads partitions and has workers. Its workers come back elsewhere and
// know what they hold; those of other nodes get everything.
func TestAttachNodeDies(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 3, neverActs)
	gone := all[1]
	w := gone.Dispatcher().Attach(spec("w", 6, "f"))
	for p := range uint32(3) {
		startIn(t, all[0].router, p, "first")
		startIn(t, all[0].router, p, "second")
	}
	var got []*perdurev1.TaskToken
	for range 3 {
		got = append(got, deliver(t, w))
	}
	staying := all[2].Dispatcher().Attach(spec("staying", 2, "g"))
	defer staying.Detach()
	gone.stop(t)
	w.Detach()
	// The worker holds three tasks and has capacity for three more. It receives the tasks that it was not
	// sent, wherever they were left.
	back := spec("w", 3, "f")
	back.Held = got
	again := all[0].Dispatcher().Attach(back)
	defer again.Detach()
	seen := map[string]bool{}
	for _, token := range got {
		seen[token.Id] = true
	}
	for len(seen) < 6 {
		token := deliver(t, again)
		if seen[token.Id] {
			t.Fatalf("%v is delivered twice", token)
		}
		seen[token.Id] = true
		got = append(got, token)
	}
	for _, token := range got {
		finish(t, all[0].router, token)
		again.Finished(token)
		again.AddCapacity(1)
	}
	settled(t, all[0], again, 6)
	for p := range uint32(3) {
		id := idIn(all[0].router, p, "g")
		must(t, all[0].router, startCmd("start "+id, id, "g", ""))
		token := deliver(t, staying)
		finish(t, all[0].router, token)
		staying.Finished(token)
		staying.AddCapacity(1)
	}
	settled(t, all[2], staying, 2)
	gone.start(t)
	ready(t, gone.Node)
	for p := range uint32(3) {
		move(t, all, p)
		startIn(t, all[0].router, p, "third")
		finish(t, all[0].router, deliver(t, again))
	}
}

// TestAttachLeaderKilled: a node is killed that leads a partition and has a worker. The next leader delivers
// the tasks that it had assigned and not sent, once, long before any lease ends.
func TestAttachLeaderKilled(t *testing.T) {
	t.Parallel() // it waits most of the time
	// The killed leader gives up after a while without contact; it is closed after that.
	all := newClusterWith(t, 3, neverActs, func(cfg *Config) { cfg.LeaderLease = soon / 3 })
	gone := leaderOf(t, all, 1)
	var rest []*member
	for _, m := range all {
		if m != gone {
			rest = append(rest, m)
		}
	}
	at := rest[0]
	w := at.Dispatcher().Attach(spec("w", 9, "f"))
	defer w.Detach()
	v := gone.Dispatcher().Attach(spec("v", 9, "h"))
	want := map[string]bool{}
	for p := range uint32(3) {
		for k := range 3 {
			want[startIn(t, at.router, p, fmt.Sprint("x", k))] = true
			id := idIn(at.router, p, fmt.Sprint("h", k))
			must(t, at.router, startCmd("start "+id, id, "h", ""))
			want[id] = true
		}
	}
	got := deliver(t, v)
	gone.kill(t)
	take := func(w *workers.Worker, n int) {
		t.Helper()
		for range n {
			token := deliver(t, w)
			if !want[token.Id] {
				t.Fatalf("%s receives %v, which was sent before", w.ID, token)
			}
			delete(want, token.Id)
		}
	}
	delete(want, got.Id)
	take(w, 9)
	back := spec("v", 8, "h")
	back.Held = []*perdurev1.TaskToken{got}
	again := rest[1].Dispatcher().Attach(back)
	defer again.Detach()
	take(again, 8)
	if len(want) != 0 {
		t.Errorf("never sent: %v", want)
	}
	settled(t, at, w, 0)
	settled(t, rest[1], again, 0)
	v.Detach()
}
