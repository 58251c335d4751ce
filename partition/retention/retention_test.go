package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// partition is a replica whose state a test has written.
type partition struct {
	id      uint32
	mu      sync.Mutex // guards r while purges are proposed
	r       *state.MemReader
	gate    *api.Error
	deletes bool
	listed  map[string][]byte // the listing's keys by id
	// noMany: some member does not know purges of many. leaves are the ids that such commands leave, tried bounds their answers; 0 for none.
	// few: some member knows only small ones.
	noMany, few bool
	leaves      map[string]bool
	tried       int
	// follows: another node leads the partition.
	follows bool
	// commands counts the purges of many, singles those of one.
	commands, singles int
}

func newPartition() *partition {
	return &partition{r: state.NewMemReader(), deletes: true, listed: map[string][]byte{}}
}

// ended adds an execution that has ended.
func (p *partition) ended(ns, function, id string, endedMS int64) {
	key := keys.VisibilityOf(ns, keys.Open+1, max(endedMS-time.Hour.Milliseconds(), 0), id) // it began an hour before
	p.listed[ns+"/"+id] = key
	p.r.Apply([]state.Write{{Key: key, Value: state.ListingClosed(&state.Header{Function: function, ClosedMS: endedMS})}})
}

// settled adds a promise of a client that is settled.
func (p *partition) settled(ns, id string, settledMS int64) {
	key := keys.Of(keys.Promise, ns, id)
	p.listed[ns+"/"+id] = key
	p.r.Apply([]state.Write{{Key: key, Value: recovery.AppendPromise(nil, recovery.Promise{ID: id, State: recovery.PromiseResolved, SettledAt: settledMS})}})
}

func (p *partition) ID() uint32                            { return p.id }
func (p *partition) Serving() bool                         { return !p.follows }
func (p *partition) View(f func(state.Reader) error) error { return f(p.r) }

// Peek has f fail at its first read, and runs it again.
func (p *partition) Peek(f func(state.Reader) error) error {
	if err := f(changed{p.r}); !errors.Is(err, errChanged) {
		return fmt.Errorf("a changed state was read as a steady one: %w", err)
	}
	return f(p.r)
}

// changed is a state that changes while it is read.
type changed struct{ state.Reader }

var errChanged = errors.New("the state has changed")

func (c changed) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	return errors.Join(c.Reader.Scan(lower, upper, fn), errChanged)
}

func (p *partition) Gate(cmd *commandv1.Command) *api.Error {
	if _, many := cmd.Kind.(*commandv1.Command_PurgeMany); many && p.noMany {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "purges of many need a higher level")
	}
	if p.few && len(cmd.GetPurgeMany().GetPurges()) > machine.FewPurges {
		return api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "so many purges need a higher level")
	}
	return p.gate
}

func (p *partition) Propose(_ context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if refused := p.Gate(cmd); refused != nil {
		return nil, refused
	}
	if many := cmd.GetPurgeMany(); many != nil {
		p.commands++
		if first := p.listed[cmd.Namespace+"/"+many.Purges[0].Id]; first != nil && first[0] == byte(keys.Visibility) {
			if at := keys.VisibilityOf(cmd.Namespace, keys.VisibilityClass(many.Class), many.CreatedMs, many.Purges[0].Id); !bytes.Equal(first, at) {
				return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%x is not where the listing has it", at)
			}
		}
		if n := len(many.Purges); n > machine.MaxPurges {
			return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d purges in one command", n)
		}
		reply := &commandv1.PurgeManyReply{}
		for i, req := range many.Purges {
			if i > 0 && i == p.tried {
				break
			}
			s := perdurev1.PurgeState_PURGE_STATE_LEFT
			if p.deletes && !p.leaves[req.Id] {
				s = p.delete(cmd.Namespace, req)
			}
			reply.States = append(reply.States, s)
		}
		return &commandv1.Reply{Kind: &commandv1.Reply_PurgeMany{PurgeMany: reply}}, nil
	}
	p.singles++
	if !p.deletes {
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "part of it is open")
	}
	p.delete(cmd.Namespace, cmd.GetPurge())
	return &commandv1.Reply{}, nil
}

// delete deletes what a purge names, if it is there.
func (p *partition) delete(ns string, req *perdurev1.PurgeRequest) perdurev1.PurgeState {
	key := p.listed[ns+"/"+req.Id]
	if key == nil {
		return perdurev1.PurgeState_PURGE_STATE_ABSENT
	}
	p.r.Apply([]state.Write{{Key: key}})
	return perdurev1.PurgeState_PURGE_STATE_DELETED
}

// rounds is a clock that lets a retention run so many rounds, each an hour after the last, and calls after between them.
type rounds struct {
	now   time.Time
	left  int
	after func(left int)
	stop  func()
}

func (c *rounds) Now() time.Time { return c.now }
func (c *rounds) After(d time.Duration) (<-chan time.Time, func()) {
	fired := make(chan time.Time, 1)
	if d < time.Hour { // within a round
		fired <- c.now
		return fired, func() {}
	}
	c.after(c.left)
	if c.left == 0 {
		c.stop()
		return nil, func() {}
	}
	c.left--
	c.now = c.now.Add(d)
	fired <- c.now
	return fired, func() {}
}

// run runs rounds over a partition and calls after before each and at the end; left counts down to 0.
func run(t *testing.T, p *partition, rules []string, n int, after func(x *Retention, left int)) (log string) {
	t.Helper()
	return runAll(t, []Replica{p}, rules, n, after)
}

// runAll is run over several partitions.
func runAll(t *testing.T, all []Replica, rules []string, n int, after func(x *Retention, left int)) (log string) {
	t.Helper()
	policy, err := ParsePolicy(rules)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out bytes.Buffer
	var x *Retention
	c := &rounds{now: time.UnixMilli(0).Add(1000 * time.Hour), left: n, stop: stop, after: func(left int) { after(x, left) }}
	x = New(Options{Policy: policy, Interval: time.Hour, Partitions: func() int { return 2 }, Clock: c, Lifetime: ctx, Log: slog.New(slog.NewTextHandler(&out, nil)),
		Replicas: func() []Replica { return all }})
	x.Run()
	return out.String()
}

// A round leaves some executions. One that ends later, and began before all of them, is purged by the next round that reads the whole listing.
func TestWholeRounds(t *testing.T) {
	p := newPartition()
	now := (1000 * time.Hour).Milliseconds()
	for i := range 5 {
		p.ended("a", "f", fmt.Sprint("e", i), now-int64(i)*time.Hour.Milliseconds())
	}
	run(t, p, []string{"100h"}, wholeEvery+1, func(x *Retention, left int) {
		switch left {
		case wholeEvery:
			p.ended("a", "f", "late", now-200*time.Hour.Milliseconds())
		case 0:
			if st := x.Status(); st.Purged != 1 {
				t.Errorf("after all rounds: %v", st)
			}
		}
	})
}

// TestPromisesRarely: promises are read ever more rarely while none is to be purged, and at once by a new leader.
func TestPromisesRarely(t *testing.T) {
	now := time.UnixMilli(0).Add(1000 * time.Hour)
	p := newPartition()
	x := New(Options{Policy: mustParse(t, "1h"), Partitions: func() int { return 1 }, Clock: &paced{now: now}, Lifetime: t.Context(), Log: slog.New(slog.DiscardHandler)})
	var purged []int
	for n := range 1000 {
		if n == 100 || n == 700 || n == 999 {
			p.settled("a", fmt.Sprint("p", n), 0)
		}
		p.follows = n == 998
		before := x.Status().Purged
		x.both(p, n, true, time.Minute, 0)
		if x.Status().Purged > before {
			purged = append(purged, n)
		}
	}
	// After rounds 0, 30, 90 they wait for 120; after 210 for 30, after 240, 300, 420 and 660 for 240.
	if want := []int{210, 900, 999}; !slices.Equal(purged, want) {
		t.Errorf("rounds %v have purged, want %v", purged, want)
	}
}

func mustParse(t *testing.T, rules ...string) Policy {
	t.Helper()
	policy, err := ParsePolicy(rules)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// A cluster whose members may not know purges keeps everything. The log says so once, and again when that is over.
func TestIdle(t *testing.T) {
	p := newPartition()
	for i := range 300 {
		p.ended("a", "f", fmt.Sprint("e", i), 0)
	}
	p.gate = api.Errorf(perdurev1.Reason_REASON_FEATURE_LEVEL, "purges need level 9, the cluster is at 8")
	log := run(t, p, []string{"1h"}, 4, func(x *Retention, left int) {
		st := x.Status()
		switch left {
		case 2:
			if st.Waiting != 300 || st.Purged != 0 || st.Idle != p.gate.Message {
				t.Errorf("without the level it reports %v", st)
			}
			p.gate, p.deletes = nil, false
		case 1:
			if st.Waiting != 300 || st.Purged != 0 || st.Idle != "" {
				t.Errorf("when all is refused it reports %v", st)
			}
			p.deletes = true
		case 0:
			if st.Waiting != 0 || st.Purged != 300 || st.Idle != "" {
				t.Errorf("at the end it reports %v", st)
			}
		}
	})
	for event, n := range map[string]int{"event=retention_on rules=1h": 1, "event=retention_idle": 1, "event=retention_resumed": 1, "purged=300": 1} {
		if strings.Count(log, event) != n {
			t.Errorf("%s is logged %d times:\n%s", event, strings.Count(log, event), log)
		}
	}
	if log := run(t, p, []string{Forever}, 1, func(*Retention, int) {}); !strings.Contains(log, "event=retention_off") {
		t.Errorf("logged: %s", log)
	}
}

// Of two partitions each keeps half of what a function may keep, the newest, and nothing that began to be kept within ten minutes;
// an age counts beside it.
func TestKeep(t *testing.T) {
	p := newPartition()
	now := time.UnixMilli(0).Add(1001 * time.Hour).UnixMilli() // of the first round
	minutes := func(n int64) int64 { return n * time.Minute.Milliseconds() }
	for i := range int64(5000) {
		p.ended("a", "f", fmt.Sprint("f", i), now-minutes(20)-i)
		p.ended("a", "g", fmt.Sprint("g", i), now-minutes(20)-i)
	}
	for i := range int64(20) {
		p.ended("b", "h", fmt.Sprint("young", i), now-minutes(9)-i)
		p.ended("b", "old", fmt.Sprint("old", i), now-minutes(60*24*7)-i-1)
	}
	kept := func() map[string]int {
		n := map[string]int{}
		if _, err := query.Search(query.EndedExecutions).Visit(p.r, nil, 1<<30, func(string) bool { return true }, func(e query.Ended) { n[e.Namespace+"/"+e.Function]++ }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	run(t, p, []string{"7d", "keep 20", "a/f=keep 1001"}, 2, func(_ *Retention, left int) {
		want := map[int]map[string]int{
			2: {"a/f": 5000, "a/g": 5000, "b/h": 20, "b/old": 20},
			1: {"a/f": 501, "a/g": 10, "b/h": 20},
			0: {"a/f": 501, "a/g": 10, "b/h": 10},
		}[left]
		if got := kept(); !maps.Equal(got, want) {
			t.Errorf("with %d rounds to go there are %v, want %v", left, got, want)
		}
	})
	if _, there, err := p.r.Get(p.listed["a/f0"]); err != nil || !there {
		t.Errorf("the newest is gone, %v", err)
	}
}

// Promises of clients have a count in each namespace, which no function's rule changes and no execution uses up.
func TestKeepPromises(t *testing.T) {
	p := newPartition()
	now := time.UnixMilli(0).Add(1001 * time.Hour).UnixMilli() // of the first round
	old := now - 20*time.Minute.Milliseconds()
	for i := range int64(5000) {
		p.settled("a", fmt.Sprint("a", i), old-i)
		p.settled("c", fmt.Sprint("c", i), old-i)
	}
	for i := range int64(20) {
		p.settled("b", fmt.Sprint("young", i), now-9*time.Minute.Milliseconds()-i)
		p.ended("a", "f", fmt.Sprint("f", i), old-i)
	}
	kept := func(find query.Search) map[string]int {
		n := map[string]int{}
		if _, err := find.Visit(p.r, nil, 1<<30, func(string) bool { return true }, func(e query.Ended) { n[e.Namespace]++ }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	run(t, p, []string{"keep 20", "a=keep 1001", "a/f=keep 2", "c=keep all", "c/f=keep 2"}, wholeEvery+1, func(_ *Retention, left int) {
		want := map[string]int{"a": 501, "b": 20, "c": 5000}
		switch left {
		case wholeEvery + 1:
			want = map[string]int{"a": 5000, "b": 20, "c": 5000}
		case 0:
			want = map[string]int{"a": 501, "b": 10, "c": 5000}
		}
		if got := kept(query.EndedPromises); !maps.Equal(got, want) {
			t.Errorf("with %d rounds to go there are %v, want %v", left, got, want)
		}
	})
	if got := kept(query.EndedExecutions); got["a"] != 1 {
		t.Errorf("%d executions are kept", got["a"])
	}
	if _, there, err := p.r.Get(p.listed["a/a0"]); err != nil || !there {
		t.Errorf("the newest is gone, %v", err)
	}
}

// One round purges what is over in every partition, whatever number of pieces that takes, and nothing else.
func TestPartitions(t *testing.T) {
	const pieces = 3
	now := (1000 * time.Hour).Milliseconds()
	day := (24 * time.Hour).Milliseconds()
	var all []Replica
	var want, kept uint64
	for id := range uint32(4) {
		p := newPartition()
		p.id = id
		for i := range int(id+1)*pieceEnded/2 + pieces*pieceEnded {
			p.ended("a", "f", fmt.Sprintf("over-%d", i), now-8*day)
			want++
			if i%10 == 0 {
				p.ended("a", "f", fmt.Sprintf("young-%d", i), now-6*day)
				kept++
			}
		}
		all = append(all, p)
	}
	runAll(t, all, []string{"7d"}, 1, func(x *Retention, left int) {
		if left > 0 {
			return
		}
		if st := x.Status(); st.Purged != want || st.Waiting != 0 {
			t.Errorf("%d of %d were purged, %d wait", st.Purged, want, st.Waiting)
		}
	})
	var left uint64
	for _, r := range all {
		_ = r.View(func(s state.Reader) error {
			return s.Scan(nil, nil, func([]byte, []byte) bool { left++; return true })
		})
	}
	if left != kept {
		t.Errorf("%d are left, want %d", left, kept)
	}
}

// A round purges many ids by each command, of one namespace, and those that such a command does not try by the next. What it leaves
// gets a purge of its own. While a member does not know such commands, each id gets its own.
func TestPurgesOfMany(t *testing.T) {
	const each = 400 // of a namespace: in a piece are both
	for _, c := range []struct {
		name              string
		noMany, few       bool
		leaves            []string
		tried             int
		commands, singles int
	}{
		{"at once", false, false, nil, 0, 5, 0}, // 256, then 144 of a and 112 of b, then 256 and 32
		{"some are left", false, false, []string{"a3", "a30", "b99"}, 0, 5, 3},
		{"ten of each command are tried", false, false, nil, 10, 83, 0}, // 26, then 15 and 12, then 26 and 4
		{"a member knows small ones only", false, true, nil, 0, 14, 0},  // 4, then 3 and 2, then 4 and 1
		{"a member does not know it", true, false, nil, 0, 0, 2 * each},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPartition()
			p.noMany, p.few, p.tried, p.leaves = c.noMany, c.few, c.tried, map[string]bool{}
			for _, id := range c.leaves {
				p.leaves[id] = true
			}
			for i := range each {
				p.ended("a", "f", fmt.Sprint("a", i), 0)
				p.ended("b", "f", fmt.Sprint("b", i), 0)
			}
			run(t, p, []string{"1h"}, 1, func(x *Retention, left int) {
				if st := x.Status(); left == 0 && (st.Purged != 2*each || st.Waiting != 0) {
					t.Errorf("%d of %d were purged, %d wait", st.Purged, 2*each, st.Waiting)
				}
			})
			if p.commands != c.commands || p.singles != c.singles {
				t.Errorf("%d commands of many and %d of one, want %d and %d", p.commands, p.singles, c.commands, c.singles)
			}
		})
	}
}
