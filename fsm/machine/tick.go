package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

const defaultTickLimit = 256

// applyTick runs expirations in a fixed order: promises, then graces, then graphs, then leases, then retries,
// then sweeps, then children, then listeners, then purges, then unblocks; within a kind by time and id (recovery protocol, sweep order). It also evicts
// stored replies that are too old.
func applyTick(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	limit := int(cmd.GetTick().Limit)
	if limit <= 0 {
		limit = defaultTickLimit
	}
	done := 0
	defer t.m.reads.forgetAhead()
	for _, kind := range keys.DeadlineKinds {
		expired := t.expired(kind, limit-done)
		if kind == keys.DeadlinePromise || kind == keys.DeadlineLease || kind == keys.DeadlineRetry {
			t.expirationsAhead(expired)
		}
		for _, ref := range expired {
			t.runExpiration(kind, ref)
			done++
		}
	}
	t.evictReplies()
	return &commandv1.Reply{Kind: &commandv1.Reply_Tick{Tick: &commandv1.TickReply{Done: uint32(done)}}}, nil
}

// expired lists objects of a kind whose deadline has expired, earliest first.
func (t *txn) expired(kind keys.DeadlineKind, limit int) []state.Ref {
	if limit <= 0 {
		return nil
	}
	_, upper := keys.DeadlineBounds(kind, t.now)
	var refs []state.Ref
	from := t.now + 1
	t.scan(t.m.deadlines.Begin(kind), upper, func(key, _ []byte) bool {
		_, at, ns, objectID, err := keys.ParseDeadline(key)
		if err != nil {
			state.PanicCorrupt("deadline", key, err)
		}
		from = min(from, at)
		refs = append(refs, state.Ref{Namespace: ns, ID: objectID})
		return len(refs) < limit
	})
	t.deadlines[kind] = from
	return refs
}

// runExpiration runs one expiration. Each rule checks again that the deadline has expired.
func (t *txn) runExpiration(kind keys.DeadlineKind, object state.Ref) {
	ref := recovery.Ref{ID: object.ID}
	switch kind {
	case keys.DeadlinePromise:
		t.timeout(object.Namespace, object.ID)
	case keys.DeadlineGrace:
		t.graceOver(object.Namespace, object.ID)
	case keys.DeadlineGraph:
		t.expireGraph(object.Namespace, object.ID)
	case keys.DeadlineEntity:
		t.queueScheduled(object.Namespace, object.ID)
	case keys.DeadlineAnswer:
		t.expireAnswer(object.Namespace, object.ID)
	case keys.DeadlineLease:
		t.expireLease(object.Namespace, ref)
	case keys.DeadlineSweep:
		t.continueSweep(object.Namespace, object.ID)
	case keys.DeadlineChildren:
		t.reachMoreChildren(object.Namespace, object.ID)
	case keys.DeadlineNotify:
		t.notifyMore(object.Namespace, object.ID)
	case keys.DeadlinePurge:
		t.continuePurge(object.Namespace, object.ID)
	case keys.DeadlineUnblock:
		t.expireUnblock(object.Namespace, object.ID)
	case keys.DeadlineRetry:
		if t.sweeping(object.Namespace, object.ID) {
			return
		}
		_, fx := recovery.ExpireRetry(t.store(object.Namespace), t.now, ref, t.retry(object.Namespace, object.ID))
		t.effects(object.Namespace, fx)
	}
}

// expireLease ends an expired lease, of a task whose worker sent no heartbeat.
func (t *txn) expireLease(ns string, ref recovery.Ref) {
	expired, fx := recovery.ExpireLease(t.store(ns), t.now, ref, t.retry(ns, ref.ID))
	if expired {
		t.fx.Expired++
	}
	t.effects(ns, fx)
	if entityID, ok := id.EntityOfTask(ref.ID); expired && ok {
		t.entityFailed(ns, entityID)
	}
}
