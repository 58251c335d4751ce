package partition

import (
	"context"
	"errors"
	"testing"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/admission"
	"perdure/partition/group"
	"perdure/partition/refusal"
)

// TestUnknownOutcomeStays: the refusal of a later attempt does not replace the unknown outcome of an earlier
// one, unless the machine itself refuses, which it never does after it has applied the request.
func TestUnknownOutcomeStays(t *testing.T) {
	t.Parallel() // it waits most of the time
	n, _ := newGatedNode(t, 1)
	const (
		unknown  = perdurev1.Reason_REASON_OUTCOME_UNKNOWN
		later    = perdurev1.Reason_REASON_TRY_LATER
		stopping = perdurev1.Reason_REASON_SHUTTING_DOWN
	)
	for _, c := range []struct {
		answers []perdurev1.Reason
		want    perdurev1.Reason
	}{
		{[]perdurev1.Reason{perdurev1.Reason_REASON_OVERLOADED}, perdurev1.Reason_REASON_OVERLOADED},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_OVERLOADED}, unknown},
		{[]perdurev1.Reason{later, unknown, later, perdurev1.Reason_REASON_OVERLOADED}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_CORRUPT}, unknown},
		{[]perdurev1.Reason{perdurev1.Reason_REASON_CORRUPT}, perdurev1.Reason_REASON_CORRUPT},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_UNAUTHENTICATED}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_PERMISSION_DENIED}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_NODE_NOT_FOUND}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_PARTITION_NOT_FOUND}, unknown},
		{[]perdurev1.Reason{unknown, stopping}, unknown}, // and then the caller's time is up
		{[]perdurev1.Reason{unknown, later}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_NOT_LEADER}, unknown},
		{[]perdurev1.Reason{stopping}, stopping},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_ID_CONFLICT}, perdurev1.Reason_REASON_ID_CONFLICT},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND}, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		k := 0
		err := n.router.route(ctx, 0, true, func(context.Context, localReplica, commandv1.PeersClient) error {
			reason := c.answers[k]
			if k++; k == len(c.answers) {
				switch reason {
				case stopping, later, perdurev1.Reason_REASON_NOT_LEADER:
					cancel() // it would try on
				}
			}
			return api.Errorf(reason, "as the script says")
		})
		cancel()
		if got := reasonOf(err); got != c.want {
			t.Errorf("%v: %v, must be %v", c.answers, got, c.want)
		}
	}
	// The node itself stops between two attempts.
	err := n.router.route(t.Context(), 0, true, func(context.Context, localReplica, commandv1.PeersClient) error {
		closeNode(t, n)
		return api.Errorf(unknown, "as the script says")
	})
	if got := reasonOf(err); got != unknown {
		t.Errorf("the node stops: %v, must be %v", got, unknown)
	}
}

// pausedClock is a clock whose timers never fire.
type pausedClock struct{ Clock }

func (pausedClock) After(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }

// changing is a replica that serves, and whose changes a test reports.
type changing struct {
	localReplica
	leader, serving chan struct{}
}

func (changing) Serving() bool                     { return true }
func (changing) Stopping() <-chan struct{}         { return nil }
func (c changing) LeaderChanged() <-chan struct{}  { return c.leader }
func (c changing) ServingChanged() <-chan struct{} { return c.serving }

// TestRouterWakesWithTheLeader: a request that was refused tries again when its partition is served, and when another
// leader is known, not when its pause is over.
func TestRouterWakesWithTheLeader(t *testing.T) {
	for name, change := range map[string]func(c changing){
		"serves":         func(c changing) { close(c.serving) },
		"another leader": func(c changing) { close(c.leader) },
	} {
		c := changing{leader: make(chan struct{}), serving: make(chan struct{})}
		r := newRouter(1, group.NewShared(SystemClock{}, admission.Limits{}), pausedClock{SystemClock{}})
		r.local = func(uint32) localReplica { return c }
		tries := 0
		done := make(chan error, 1)
		tried := make(chan struct{}, 1)
		go func() {
			done <- r.route(t.Context(), 0, true, func(context.Context, localReplica, commandv1.PeersClient) error {
				if tries++; tries == 1 {
					tried <- struct{}{}
					return refusal.TryLater(0, "not yet")
				}
				return nil
			})
		}()
		<-tried
		change(c)
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the request waits for its pause", name)
		}
	}
}

// leaping is a clock that every timer moves on to its time.
type leaping struct{ now time.Time }

func (c *leaping) Now() time.Time { return c.now }

func (c *leaping) After(d time.Duration) (<-chan time.Time, func()) {
	c.now = c.now.Add(d)
	fired := make(chan time.Time)
	close(fired)
	return fired, func() {}
}

// cutOff is a replica that serves nothing. known says when it knows another node to lead.
type cutOff struct {
	localReplica
	known func() bool
}

func (cutOff) Serving() bool                   { return false }
func (cutOff) Establishing() bool              { return false }
func (cutOff) Halted() error                   { return nil }
func (cutOff) Stopping() <-chan struct{}       { return nil }
func (cutOff) LeaderChanged() <-chan struct{}  { return nil }
func (cutOff) ServingChanged() <-chan struct{} { return nil }
func (cutOff) NotServing() *api.Error          { return refusal.TryLater(3, "no leader is ready yet") }

func (c cutOff) LeaderElsewhere() (group.Leader, bool) {
	if !c.known() {
		return group.Leader{}, false
	}
	return group.Leader{Addr: "other"}, true
}

// TestNoLeaderKnown: a caller at a node that hears from nobody gets TRY_LATER, which names the partition, when no leader
// has been known for leaderlessTimeout. One at a node that knows a leader now and then waits for routeTimeout.
func TestNoLeaderKnown(t *testing.T) {
	for _, c := range []struct {
		name   string
		known  func(waited time.Duration) bool
		before error
		want   time.Duration
		reason perdurev1.Reason
	}{
		{"no leader", func(time.Duration) bool { return false }, nil, leaderlessTimeout, perdurev1.Reason_REASON_TRY_LATER},
		{"a leader, then none", func(d time.Duration) bool { return d < 3*time.Second }, nil, 3*time.Second + leaderlessTimeout, perdurev1.Reason_REASON_TRY_LATER},
		{"an attempt without an answer, then none", func(d time.Duration) bool { return d < time.Second },
			refusal.Unknown(3, "no answer"), time.Second + leaderlessTimeout, perdurev1.Reason_REASON_OUTCOME_UNKNOWN},
		{"a leader every 4 s", func(d time.Duration) bool { return d%(4*time.Second) < 300*time.Millisecond }, nil, routeTimeout, perdurev1.Reason_REASON_TRY_LATER},
	} {
		at := &leaping{now: time.Unix(1000, 0)}
		begun := at.now
		r := newRouter(4, group.NewShared(SystemClock{}, admission.Limits{}), at)
		r.client = func(string) (commandv1.PeersClient, error) { return nil, nil }
		r.local = func(uint32) localReplica { return cutOff{known: func() bool { return c.known(at.now.Sub(begun)) }} }
		err := r.route(t.Context(), 3, true, func(context.Context, localReplica, commandv1.PeersClient) error {
			if c.before != nil {
				return c.before
			}
			return refusal.TryLater(3, "not yet")
		})
		if waited := at.now.Sub(begun); waited < c.want || waited > c.want+2*routePauseMax {
			t.Errorf("%s: the caller waits %v, must wait %v", c.name, waited, c.want)
		}
		if got := reasonOf(err); got != c.reason {
			t.Errorf("%s: %v, must be %v", c.name, err, c.reason)
		}
		e, _ := api.FromStatus(err)
		if named := e.Meta["partition"]; c.want < routeTimeout && c.before == nil && named != "3" {
			t.Errorf("%s: %v names partition %q", c.name, err, named)
		}
	}
}

// TestNoSuchPartition: a request to a partition that there is not is refused by name.
func TestNoSuchPartition(t *testing.T) {
	r := newRouter(2, group.NewShared(SystemClock{}, admission.Limits{}), SystemClock{})
	if _, err := r.Deliver(bg(t), 2, tickCmd()); reasonOf(err) != perdurev1.Reason_REASON_PARTITION_NOT_FOUND {
		t.Errorf("a command: %v", err)
	}
	if _, _, err := r.Read(bg(t), 2, group.Stale, promiseQuery("p")); reasonOf(err) != perdurev1.Reason_REASON_PARTITION_NOT_FOUND {
		t.Errorf("a stale read: %v", err)
	}
}

// Every error of a proposal is one of the interface's.
func TestErrorsAreTyped(t *testing.T) {
	n := newMemNode(t, 1)
	_, err := n.Router().Propose(bg(t), signalCmd("s", "absent", "go", ""))
	var e *api.Error
	if !errors.As(err, &e) || e.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND || e.Meta["id"] != "absent" {
		t.Errorf("%v", err)
	}
}

// TestLinearizableReadsGoToTheLeader: a router and the peer service ask for the leader's confirmation unless the caller
// wants a stale read.
func TestLinearizableReadsGoToTheLeader(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 1, neverActs)
	lead := leaderOf(t, all, 0)
	must(t, lead.router, createCmd("p"))
	equalReplicas(t, all, 0)
	for _, m := range all {
		ask := func(stale bool) error {
			_, err := (&peerService{n: m.Node}).Query(bg(t), &commandv1.PeerQuery{Query: promiseQuery("p"), Stale: stale})
			return err
		}
		if err := ask(true); err != nil {
			t.Errorf("%s: a stale read: %v", m.cfg.NodeID, err)
		}
		if err := ask(false); (err == nil) != (m == lead) {
			t.Errorf("%s answers a linearizable read with %v, %s leads", m.cfg.NodeID, err, lead.cfg.NodeID)
		}
	}
	asked := &reading{}
	r := newRouter(1, group.NewShared(SystemClock{}, admission.Limits{}), SystemClock{})
	r.local = func(uint32) localReplica { return asked }
	if _, _, err := r.Query(bg(t), group.Linearizable, promiseQuery("p")); err != nil || asked.level != group.Linearizable || asked.reads != 1 {
		t.Errorf("a router asks %d times, at level %v: %v", asked.reads, asked.level, err)
	}
}

// reading is a replica that serves, and notes at which level it was read.
type reading struct {
	changing
	level group.Level
	reads int
}

func (r *reading) Query(_ context.Context, level group.Level, _ *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	r.level = level
	r.reads++
	return &commandv1.QueryReply{}, 1, nil
}
