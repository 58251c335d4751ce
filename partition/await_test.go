package partition

import (
	"context"
	"sync"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/group"
)

// TestAwaitOverLeaders: a caller that waits for a result gets it soon after the settlement, at any node, also when the
// leadership is transferred or the leader killed meanwhile.
func TestAwaitOverLeaders(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, lead *member, all []*member) (rest []*member){
		"one leader": func(_ *testing.T, _ *member, all []*member) []*member { return all },
		"a transfer": func(t *testing.T, lead *member, all []*member) []*member {
			target := all[0]
			if target == lead {
				target = all[1]
			}
			transfer(t, lead, 0, target.cfg.NodeID)
			return all
		},
		"a killed leader": func(t *testing.T, lead *member, all []*member) (rest []*member) {
			lead.kill(t)
			for _, m := range all {
				if m != lead {
					rest = append(rest, m)
				}
			}
			waitFor(t, "another leader", func() bool { return leads(rest[0], 0) || leads(rest[1], 0) }, func() string { return "" })
			return rest
		},
	} {
		t.Run(what, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
				all := newClusterWith(t, 1, timeouts, on(net))
				lead := leaderOf(t, all, 0)
				incarnation := must(t, lead.router, startCmd("start", "e", "f", "1")).GetStart().Incarnation
				type answer struct {
					at    *member
					reply *commandv1.QueryReply
					err   error
				}
				answers := make(chan answer, 9)
				for _, m := range all {
					for _, i := range []uint64{0, incarnation} {
						go func() {
							reply, _, err := m.router.Await(bg(t), &commandv1.Query{Namespace: ns, Id: "e", Kind: &commandv1.Query_Result{
								Result: &perdurev1.ResultRequest{Id: "e", Incarnation: i}}}, time.Hour)
							answers <- answer{m, reply, err}
						}()
					}
				}
				waitFor(t, "all to wait at the leader", func() bool { return lead.shared.Watches.Waiting() == 6 }, func() string { return "" })
				rest := change(t, lead, all)
				must(t, rest[len(rest)-1].router, terminateCmd("e"))
				ended := time.Now()
				for range 2 * len(rest) {
					a := <-answers
					for len(rest) < len(all) && a.at == lead {
						a = <-answers // the killed node's own callers
					}
					if a.err != nil || !a.reply.GetResult().Done || a.reply.GetResult().Incarnation != incarnation {
						t.Errorf("at %s: %v, %v", a.at.cfg.NodeID, a.reply, a.err)
					}
				}
				if took := time.Since(ended); took > time.Second {
					t.Errorf("the answers took %v", took)
				}
			})
		})
	}
}

// TestAwaitIsBounded: a wait ends after a minute at the latest, with what is known then.
func TestAwaitIsBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 1, timeouts, on(net))
		must(t, all[0].router, startCmd("start", "e", "f", "1"))
		var waits sync.WaitGroup
		for _, m := range all {
			waits.Go(func() {
				began := time.Now()
				reply, _, err := m.router.Await(bg(t), resultQuery("e"), time.Hour)
				if took := time.Since(began); err != nil || reply.GetResult().Done || took < maxAwait || took > maxAwait+time.Second {
					t.Errorf("at %s after %v: %v, %v", m.cfg.NodeID, took, reply, err)
				}
			})
		}
		waits.Wait()
	})
}

// Query answers that a run goes on, a few times, and then that it has ended.
func (p *scriptedPeer) Query(context.Context, *commandv1.PeerQuery) (*commandv1.PeerQueryReply, error) {
	p.queries++
	return &commandv1.PeerQueryReply{Index: 7, Reply: &commandv1.QueryReply{Kind: &commandv1.QueryReply_Result{
		Result: &perdurev1.ResultResponse{Done: p.queries > 3}}}}, nil
}

// TestAwaitOfAFormerLeader: a leader of a version that does not know Await is asked until the result is
// there, or the wait is over.
func TestAwaitOfAFormerLeader(t *testing.T) {
	r, p := routerTo(t, 1)
	reply, index, err := r.Await(bg(t), resultQuery("e"), time.Minute)
	if err != nil || !group.Settled(reply) || index != 7 || p.queries != 4 {
		t.Errorf("%v at %d, %v, after %d questions", reply, index, err, p.queries)
	}
	r, p = routerTo(t, 1)
	if reply, _, err = r.Await(bg(t), resultQuery("e"), 0); err != nil || group.Settled(reply) || p.queries != 1 {
		t.Errorf("%v, %v, after %d questions", reply, err, p.queries)
	}
}
