// Package auditor checks this node's replicas by all rules of the state machine. Background audits run in
// pieces, at a bounded share of one processor; a verification by an operator runs at once.
//
// It promises that an audit changes nothing and halts nothing, that it ends with its caller, and that only
// one verification runs on a node at a time. A crash loses what the last audit has found; the next round
// finds it again. partition/DESIGN.md has the costs of a snapshot and the reason why nothing halts.
package auditor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/internal/clock"
)

const (
	// auditPiece is for how long the audit in the background holds one snapshot, and works without a pause: until
	// the object is done at which the time is over.
	auditPiece = 5 * time.Millisecond
	// auditOverhead is what a piece costs for each unit of its own time: the garbage that it leaves is collected
	// later. Measured as 1.2 on an idle node with 200,000 keys.
	auditOverhead = 1.25
	// verifyPiece is for how long a verification holds one snapshot. A state that takes longer is checked on
	// several: Pebble keeps what a snapshot sees, so one that is never let go fills the disk.
	verifyPiece = time.Minute
	// busyShare is the part of its share that the audit in the background takes while the node is busy.
	busyShare = 0.25
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

// A Replica is a replica as an audit sees it.
type Replica interface {
	ID() uint32
	// Halted is why the replica has stopped for good, or nil.
	Halted() error
	// Audit checks the state until over returns true or check an error; done says that the end was reached.
	Audit(a *audit.Auditor, over func() bool, check func() error) (done bool, err error)
	// SetAudit notes what the last audit in the background has found.
	SetAudit(*perdurev1.ReplicaAudit)
}

// Options are New's. None of them changes.
type Options struct {
	NodeID     string
	Partitions uint32
	// Share is the part of one processor that background audits may take, 0 for none; Interval is how long after the
	// beginning of one round the next begins, if that is over.
	Share    float64
	Interval time.Duration
	// Busy reports whether requests compete with the audit in the background since the last call: it takes less then.
	Busy     func() bool
	Replicas func() []Replica
	Clock    clock.Clock
	Log      *slog.Logger
	Lifetime context.Context // ends when the node begins to stop
}

// Auditor checks the replicas of a node.
type Auditor struct {
	o Options
	// verifying is held by the verification under way.
	verifying sync.Mutex
	// logged are violations that were logged; Run's.
	logged map[string]bool
}

// New makes the auditor of a node.
func New(o Options) *Auditor { return &Auditor{o: o, logged: map[string]bool{}} }

// Run audits the replicas one after the other, and blocks until Lifetime ends.
func (a *Auditor) Run() {
	if a.o.Share <= 0 || a.o.Interval <= 0 {
		return
	}
	for wait := min(a.o.Interval, firstAudit); a.pause(wait); {
		begun := a.o.Clock.Now()
		for _, r := range a.o.Replicas() {
			a.background(r)
		}
		wait = max(a.o.Interval-a.o.Clock.Now().Sub(begun), 0)
	}
}

// pause waits for d; false if the node stops.
func (a *Auditor) pause(d time.Duration) bool {
	c, stop := a.o.Clock.After(d)
	defer stop()
	select {
	case <-c:
		return true
	case <-a.o.Lifetime.Done():
		return false
	}
}

// background audits one replica in pieces. After each it pauses for as long as keeps its work at the share, or
// below while the node is busy.
func (a *Auditor) background(r Replica) {
	begun := a.o.Clock.Now()
	out := &perdurev1.ReplicaAudit{Partition: r.ID()}
	report, err := a.Check(a.o.Lifetime, r, auditProblems, func() func() bool {
		started := a.o.Clock.Now()
		return func() bool { return a.o.Clock.Now().Sub(started) >= auditPiece }
	}, func(worked time.Duration) bool {
		share := a.o.Share
		if a.o.Busy() {
			share *= busyShare
		}
		return a.pause(time.Duration(float64(worked) * auditOverhead * (1 - share) / share))
	})
	if err != nil {
		return // the replica is halted or ends audits, or the node stops: the next round audits it
	}
	a.fill(out, report, begun)
	a.log(out)
	r.SetAudit(out)
}

// errOver says that between had no pause to give.
var errOver = errors.New("partition: audit stopped")

// Check audits one replica and returns at most so many violations. piece begins a piece and returns a
// function that reports when the piece is over. Check calls between after each piece with the piece's
// duration, and stops if it returns false.
func (a *Auditor) Check(ctx context.Context, r Replica, most int, piece func() func() bool, between func(worked time.Duration) bool) (audit.Report, error) {
	if err := r.Halted(); err != nil {
		return audit.Report{}, err
	}
	run, err := audit.New(state.Partition{Number: r.ID(), Count: a.o.Partitions}, most)
	for done := false; !done && err == nil; {
		started := a.o.Clock.Now()
		done, err = r.Audit(run, piece(), func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return r.Halted()
		})
		if err == nil && !between(a.o.Clock.Now().Sub(started)) && !done {
			err = errOver
		}
	}
	if err != nil {
		return audit.Report{}, err
	}
	return run.Report(), nil
}

// fill puts a report into words for others.
func (a *Auditor) fill(out *perdurev1.ReplicaAudit, report audit.Report, begun time.Time) {
	now := a.o.Clock.Now()
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

// log logs each violation once. It halts nothing: the comparison of checksums halts a replica that differs
// from the others', and a state that breaks a rule on all of them serves.
func (a *Auditor) log(out *perdurev1.ReplicaAudit) {
	for _, p := range out.Problems {
		key := fmt.Sprint(out.Partition, "\x00", p.Rule, "\x00", p.Namespace, "\x00", p.Id)
		if a.logged[key] || len(a.logged) >= auditLogged {
			continue
		}
		a.logged[key] = true
		a.o.Log.Error("state violates a rule", "event", "audit_problem", "partition", out.Partition, "rule", p.Rule,
			"namespace", p.Namespace, "id", p.Id, "detail", p.Detail, "index", out.Through)
	}
}

// Verify checks all replicas of this node and sends the result of each. It blocks until that is done; send is not
// called concurrently. A second verification is refused with TRY_LATER.
func (a *Auditor) Verify(ctx context.Context, send func(*perdurev1.VerifyEvent) error) error {
	if !a.verifying.TryLock() {
		return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "node %s verifies for another caller: try again when that has ended", a.o.NodeID).
			With("node", a.o.NodeID)
	}
	defer a.verifying.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.o.Lifetime, cancel)()
	said := &progress{node: a.o.NodeID, clock: a.o.Clock, send: send}
	defer said.start()()
	for _, r := range a.o.Replicas() {
		begun := a.o.Clock.Now()
		out := &perdurev1.ReplicaAudit{Partition: r.ID()}
		report, err := a.Check(ctx, r, verifyProblems, func() func() bool {
			started := a.o.Clock.Now()
			return func() bool {
				said.checked(r.ID())
				return said.failed() != nil || a.o.Clock.Now().Sub(started) >= verifyPiece
			}
		}, func(time.Duration) bool { return said.failed() == nil })
		switch {
		case said.failed() != nil:
			return said.failed()
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			out.Error = err.Error()
		default:
			a.fill(out, report, begun)
		}
		if err := said.say(&perdurev1.VerifyEvent{NodeId: a.o.NodeID, Kind: &perdurev1.VerifyEvent_Audit{Audit: out}}); err != nil {
			return err
		}
	}
	return said.say(&perdurev1.VerifyEvent{NodeId: a.o.NodeID, Kind: &perdurev1.VerifyEvent_Done{Done: true}})
}
