package partition

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/fsm/audit"
	"perdure/fsm/state"
)

const (
	// auditPiece is for how long the audit in the background holds one snapshot, and works without a pause: until
	// the object is done at which the time is over.
	auditPiece = 5 * time.Millisecond
	// auditOverhead is what a piece costs for each unit of its own time: the garbage that it leaves is collected
	// later. Measured as 1.2 on an idle node with 200,000 keys.
	auditOverhead = 1.25
	// verifyPiece is for how long a verification holds one snapshot. A state that takes longer is judged on
	// several: Pebble keeps what a snapshot sees, so one that is never let go fills the disk.
	verifyPiece = time.Minute
	// firstAudit is how soon after the start the background's first round begins, if the interval is longer.
	firstAudit = 10 * time.Second
	// auditProblems bounds the violations that an audit in the background keeps, verifyProblems those of a
	// verification, for each replica. All are counted.
	auditProblems  = 16
	verifyProblems = 500
	// auditDetail bounds what is said of each, in bytes.
	auditDetail = 1024
	// auditLogged bounds the violations of which a node remembers that it has logged them.
	auditLogged = 1000
	// verifyEvery is how often a verification says how far it is.
	verifyEvery = time.Second
)

// auditor judges the replicas of a node by all rules: in the background, piece by piece and at a bounded share of
// one processor, and when it is asked, at once.
type auditor struct {
	n *Node
	// asked is held by the verification under way.
	asked sync.Mutex
	// logged are violations that were logged; of the loop.
	logged map[string]bool
	// spent is the time that background audits have worked, in nanoseconds.
	spent atomic.Int64
}

// auditLoop audits each replica in turns, until the node stops.
func (n *Node) auditLoop() {
	share, interval := n.cfg.AuditShare, n.cfg.AuditInterval
	if share <= 0 || interval <= 0 {
		return
	}
	for wait := min(interval, firstAudit); n.pauseFor(wait); {
		begun := n.clock.Now()
		for _, r := range n.router.Replicas() {
			n.auditor.background(r, share)
		}
		wait = max(interval-n.clock.Now().Sub(begun), 0)
	}
}

// pauseFor waits; it answers false when the node stops.
func (n *Node) pauseFor(d time.Duration) bool {
	c, stop := n.clock.After(d)
	defer stop()
	select {
	case <-c:
		return true
	case <-n.stopping:
		return false
	}
}

// background audits one replica in pieces. After each it pauses for as long as keeps its work at the share.
func (a *auditor) background(r *Replica, share float64) {
	begun := a.n.clock.Now()
	out := &perdurev1.ReplicaAudit{Partition: r.id}
	report, err := a.judge(a.n.lifetime, r, auditProblems, func() func() bool {
		started := a.n.clock.Now()
		return func() bool { return a.n.clock.Now().Sub(started) >= auditPiece }
	}, func(worked time.Duration, _ uint64) bool {
		a.spent.Add(int64(worked))
		return a.n.pauseFor(time.Duration(float64(worked) * auditOverhead * (1 - share) / share))
	})
	if err != nil {
		return // the replica is halted or gives way, or the node stops: the next round looks again
	}
	a.fill(out, report, begun)
	a.log(r, out)
	r.audited.Store(out)
}

// errAuditOver says that between had no pause to give.
var errAuditOver = errors.New("partition: the audit was stopped between two pieces")

// judge audits one replica. pause begins a piece and says when it is over; between is called after each, with how
// long it took and how many keys were judged, and says whether to go on.
func (a *auditor) judge(ctx context.Context, r *Replica, most int, pause func() func() bool, between func(worked time.Duration, keys uint64) bool) (audit.Report, error) {
	if err := r.halted(); err != nil {
		return audit.Report{}, err
	}
	if r.store == nil {
		return audit.Report{}, fsm.ErrClosed
	}
	run, err := audit.New(state.Partition{Number: r.id, Count: r.partitions}, most)
	for done := false; !done && err == nil; {
		started := a.n.clock.Now()
		done, err = r.store.Audit(run, r.now().UnixMilli(), pause(), func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return r.halted()
		})
		if err == nil && !between(a.n.clock.Now().Sub(started), run.Keys()) && !done {
			err = errAuditOver
		}
	}
	if err != nil {
		return audit.Report{}, err
	}
	return run.Report(), nil
}

// fill puts a report into words for others.
func (a *auditor) fill(out *perdurev1.ReplicaAudit, report audit.Report, begun time.Time) {
	now := a.n.clock.Now()
	out.Applied, out.Through, out.EndedMs, out.TookMs = report.Applied, report.Through, now.UnixMilli(), now.Sub(begun).Milliseconds()
	if report.Applied == report.Through {
		out.Content = report.Content
	}
	out.Keys, out.Executions, out.Open, out.Events, out.Promises = report.Keys, report.Executions, report.Open, report.Events, report.Promises
	out.Found = report.Found
	for _, v := range report.Violations {
		p := &perdurev1.AuditProblem{Rule: v.Rule, Namespace: v.Namespace, Id: v.ID,
			Detail: strings.ToValidUTF8(v.Detail[:min(len(v.Detail), auditDetail)], "")}
		if v.HasSeq {
			p.Seq = &v.Seq
		}
		out.Problems = append(out.Problems, p)
	}
}

// log tells of each violation once. It halts nothing: a state that breaks a rule on every replica alike is served
// as it is, and one that differs from the others' is halted by the comparison of checksums.
func (a *auditor) log(r *Replica, out *perdurev1.ReplicaAudit) {
	for _, p := range out.Problems {
		key := label(r.id) + "\x00" + p.Rule + "\x00" + p.Namespace + "\x00" + p.Id
		if a.logged[key] || len(a.logged) >= auditLogged {
			continue
		}
		a.logged[key] = true
		r.log.Error("audit found a broken rule", "event", "audit_problem", "partition", r.id, "rule", p.Rule,
			"namespace", p.Namespace, "id", p.Id, "detail", p.Detail, "index", out.Through)
	}
}

// verify judges all replicas of this node and tells send of each. Only one verification runs on a node at a time.
func (n *Node) verify(ctx context.Context, send func(*perdurev1.VerifyEvent) error) error {
	if !n.auditor.asked.TryLock() {
		return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "node %s verifies for another caller: try again when that has ended", n.identity.NodeID).
			With("node", n.identity.NodeID)
	}
	defer n.auditor.asked.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.lifetime, cancel)()
	said := &verifyProgress{n: n, send: send}
	defer said.start()()
	for _, r := range n.router.Replicas() {
		begun := n.clock.Now()
		out := &perdurev1.ReplicaAudit{Partition: r.id}
		report, err := n.auditor.judge(ctx, r, verifyProblems, func() func() bool {
			started := n.clock.Now()
			return func() bool {
				said.judged(r.id)
				return said.failed() != nil || n.clock.Now().Sub(started) >= verifyPiece
			}
		}, func(time.Duration, uint64) bool { return said.failed() == nil })
		switch {
		case said.failed() != nil:
			return said.failed()
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			out.Error = err.Error()
		default:
			n.auditor.fill(out, report, begun)
		}
		if err := said.say(&perdurev1.VerifyEvent{NodeId: n.identity.NodeID, Kind: &perdurev1.VerifyEvent_Audit{Audit: out}}); err != nil {
			return err
		}
	}
	return said.say(&perdurev1.VerifyEvent{NodeId: n.identity.NodeID, Kind: &perdurev1.VerifyEvent_Done{Done: true}})
}

// Verify implements Peers.
func (s *peerService) Verify(_ *perdurev1.VerifyRequest, stream commandv1.Peers_VerifyServer) error {
	return s.n.verify(stream.Context(), stream.Send)
}

// Verify has every member judge its replicas and passes on what they say, each member's in its order. A member
// that cannot is an event, not an error; errors are ctx's and send's. send is not called concurrently.
func (o *Operator) Verify(ctx context.Context, in *perdurev1.VerifyRequest, send func(*perdurev1.VerifyEvent) error) error {
	n := o.n
	members := n.cluster.Members()
	if dir := n.Directory(); dir != nil {
		members = dir.Members
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	one := func(ev *perdurev1.VerifyEvent) error {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		err := send(ev)
		if err != nil {
			cancel(err)
		}
		return err
	}
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() {
			if err := o.verifyMember(ctx, m, in, one); err != nil && ctx.Err() == nil {
				if e, ours := api.FromStatus(err); ours {
					err = e
				}
				_ = one(&perdurev1.VerifyEvent{NodeId: m.NodeId, Kind: &perdurev1.VerifyEvent_Refused{Refused: err.Error()}})
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (o *Operator) verifyMember(ctx context.Context, m *commandv1.DirectoryMember, in *perdurev1.VerifyRequest, send func(*perdurev1.VerifyEvent) error) error {
	if m.ServerId == o.n.identity.ServerID {
		return o.n.verify(ctx, send)
	}
	client, err := o.n.reach(ctx, m)
	if err != nil {
		return err
	}
	stream, err := client.Verify(ctx, in)
	if err != nil {
		return err
	}
	for {
		ev, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := send(ev); err != nil {
			return err
		}
		if ev.GetDone() {
			return nil
		}
	}
}
