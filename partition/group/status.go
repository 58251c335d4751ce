package group

import (
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/fsm/audit"
	"perdure/partition/raftgroup"
)

// Status returns the replica's figures, as operators and other nodes see them.
func (r *Replica) Status() *commandv1.ReplicaStatus {
	st := &commandv1.ReplicaStatus{State: "Shutdown"}
	if r.raft != nil {
		st = raftgroup.Status(r.raft)
	}
	st.Partition = r.id
	st.Serving = r.Serving()
	st.Audit = r.audited.Load()
	if err := r.Halted(); err != nil {
		st.Halted, st.State = err.Error(), "Shutdown"
		return st
	}
	have, err := r.store.Status()
	if err != nil {
		st.Halted = err.Error()
		return st
	}
	st.Applied, st.Checksum = have.Applied, have.Checksum
	if st.FeatureLevel, err = r.FeatureLevel(); err != nil {
		st.Halted = err.Error()
		return st
	}
	for _, m := range r.store.Marks() {
		st.Marks = append(st.Marks, &commandv1.ChecksumMark{Index: m.Index, Checksum: m.Checksum})
	}
	return st
}

// Applied is the index of the last entry that Raft had applied; 0 before the replica runs. It does not block.
func (r *Replica) Applied() uint64 {
	if r.raft == nil {
		return 0
	}
	return r.raft.AppliedIndex()
}

// caughtUpWithin is how many entries a replica may lack of its leader's log to count as caught up.
const caughtUpWithin = 256

// Behind returns whether this replica has caught up with its leader since the start, and how many entries it
// lacked at the last comparison.
func (r *Replica) Behind() (entries uint64, caught bool) { return r.behind.Load(), r.caught.Load() }

// CompareLog compares this replica's log with its leader's, which ends at an index. A replica that serves has
// caught up.
func (r *Replica) CompareLog(leader uint64) (caught bool) {
	own := r.raft.LastIndex()
	if r.Serving() || own+caughtUpWithin >= leader {
		r.caught.Store(true)
		return true
	}
	r.behind.Store(leader - own)
	return false
}

// Audit implements auditor.Replica.
func (r *Replica) Audit(a *audit.Auditor, over func() bool, check func() error) (done bool, err error) {
	if r.store == nil {
		return false, fsm.ErrClosed
	}
	return r.store.Audit(a, r.env.Now().UnixMilli(), over, check)
}

// SetAudit implements auditor.Replica.
func (r *Replica) SetAudit(a *perdurev1.ReplicaAudit) { r.audited.Store(a) }
