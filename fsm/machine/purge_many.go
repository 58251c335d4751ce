package machine

import (
	"slices"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
)

const (
	// MaxPurges bounds the purges of one command.
	MaxPurges = 256
	// FewPurges bounds them below LevelPromise.
	FewPurges = 64
	// purgeEntries bounds the journal entries that the purges of one command read together.
	purgeEntries = 1024
)

// applyPurgeMany purges executions that have ended and settled promises of no execution. Each purge is decided as applyPurge
// decides it, but only what takes little is deleted: promises, and executions that purgeLeaf deletes. The others are left to
// commands of their own, which delete them in parts or say why they are kept. An execution that has ended has no expirations to run
// first. The command is idempotent: what is gone is answered as absent, and so is an id that is named a second time.
func applyPurgeMany(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	many, ns := cmd.GetPurgeMany(), cmd.Namespace
	purges := many.GetPurges()
	if n := len(purges); n == 0 || n > MaxPurges {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d purges in one command, must be 1 to %d", n, MaxPurges).
			With("namespace", ns).With("rule", rulePurge)
	}
	for _, req := range purges {
		if refused := t.m.mustOwn(ns, req.Id); refused != nil {
			return nil, refused
		}
	}
	t.level = max(t.level, state.LevelPurges, purgesLevel(many))
	reply := &commandv1.PurgeManyReply{States: make([]perdurev1.PurgeState, 0, len(purges))}
	unread := &purgeMany{execution: execution{ns: ns}, most: 2 * len(purges)}
	if class := keys.VisibilityClass(many.Class); closedStatus(class) != 0 && many.Class <= uint32(keys.Cancelled) {
		unread.leaves = t.leavesFrom(t.visibilityOf(ns, class, many.CreatedMs, purges[0].Id), ns, class, purges, unread.most)
	}
	for left := uint64(purgeEntries); len(reply.States) < len(purges); {
		unread.asked = purges[len(reply.States)+1:]
		s, entries := t.purgeOfMany(unread, purges[len(reply.States)], left)
		if entries > left {
			break
		}
		left -= entries
		reply.States = append(reply.States, s)
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_PurgeMany{PurgeMany: reply}}, nil
}

// purgesLevel is the feature level that the number of purges in one command needs.
func purgesLevel(many *commandv1.PurgeMany) uint64 {
	if len(many.GetPurges()) > FewPurges {
		return state.LevelPromise
	}
	return 0
}

// purgeMany is what the purges of one command share.
type purgeMany struct {
	execution         // memory for those that are not in the cache
	in        inlined // of execution, of whose header the listing has a part
	// leaves are headers of those that the listing has from where the command says on, and of those after the first leaf that is not
	// among these, as far as purges ask for them. most bounds the entries of the listing that are read for each.
	leaves   []listedLeaf
	most     int
	followed bool // the second has been read
	// asked are the purges that follow the one in progress.
	asked []*perdurev1.PurgeRequest
}

// listedLeaf is what the listing has of the header of a leaf.
type listedLeaf struct {
	id                  string
	status              journal.Status
	createdMS, closedMS int64
	incarnation, events uint64
	in                  inlined
}

// header is what the listing has of it.
func (l *listedLeaf) header() state.Header {
	return state.Header{
		ID: l.id, Incarnation: l.incarnation, Kind: state.KindFunction, Status: l.status, CreatedMS: l.createdMS, ClosedMS: l.closedMS,
		Events: l.events, HeaderMore: state.HeaderMore{Leaf: true},
	}
}

// readHeader reads the header of an execution that is not in the cache. Retention names executions in the order of the listing,
// so one range of that has most of them, and a read of each is saved.
func (t *txn) readHeader(x *purgeMany, objectID string) (ok bool) {
	if i := slices.IndexFunc(x.leaves, func(l listedLeaf) bool { return l.id == objectID }); i >= 0 {
		if x.h, x.in = x.leaves[i].header(), x.leaves[i].in; i == 0 {
			x.leaves = x.leaves[1:] // as nearly always
		} else {
			x.leaves = slices.Delete(x.leaves, i, i+1)
		}
		return true
	}
	x.h, ok = t.stored().Header(x.ns, objectID)
	x.in = inlinedOf(&x.h)
	if ok && x.h.Leaf && !x.followed && x.h.Status.Terminal() {
		x.followed = true
		class := closedClass(x.h.Status)
		x.leaves = append(x.leaves, t.leavesFrom(keys.After(t.visibilityOf(x.ns, class, x.h.CreatedMS, x.h.ID)), x.ns, class, x.asked, x.most)...)
	}
	return ok
}

// leavesFrom reads leaves of a class from the listing, from a key to the last one that is asked for: behind it there may be nothing but
// what was deleted, which a scan passes key by key. It reads so many entries at most.
func (t *txn) leavesFrom(from []byte, ns string, class keys.VisibilityClass, asked []*perdurev1.PurgeRequest, most int) []listedLeaf {
	leaves, read := make([]listedLeaf, 0, most), 0
	if len(asked) == 0 {
		return leaves
	}
	prefix := keys.VisibilityPrefix(ns, class)
	t.scan(from, keys.After(prefix), func(key, value []byte) bool {
		createdMS, objectID, err := keys.ParseVisibility(key, prefix)
		var end state.ListedEnd
		if err == nil {
			end, err = state.ReadListingClosed(value)
		}
		if err != nil {
			state.PanicCorrupt("listing", key, err)
		}
		if end.Leaf {
			leaves = append(leaves, listedLeaf{objectID, closedStatus(class), createdMS, end.ClosedMS, end.Incarnation, end.Events,
				inlined{end.Inline, end.InlinePromise}})
		}
		if objectID == asked[0].Id {
			asked = asked[1:]
		}
		read++
		return read < most && len(asked) > 0
	})
	return leaves
}

// purgeOfMany runs one purge of many. entries is how many journal entries it reads; if that is more than left, it has done
// nothing.
func (t *txn) purgeOfMany(x *purgeMany, req *perdurev1.PurgeRequest, left uint64) (s perdurev1.PurgeState, entries uint64) {
	ex, ns := &x.execution, x.ns
	var in inlined
	if id.ValidateRoot(req.Id) != nil {
		return perdurev1.PurgeState_PURGE_STATE_LEFT, 0
	}
	if cached := t.m.cache.get(ns, req.Id); cached != nil {
		ex, in = cached, inlinedOf(&cached.h)
	} else if !t.readHeader(x, req.Id) {
		s, refused := t.purgePromise(ns, req)
		if refused != nil {
			s = perdurev1.PurgeState_PURGE_STATE_LEFT
		}
		return s, 0
	} else {
		in = x.in
	}
	h := &ex.h
	switch {
	case req.Incarnation != 0 && req.Incarnation != h.Incarnation:
		return perdurev1.PurgeState_PURGE_STATE_ABSENT, 0
	case h.Purge != "" || h.Events > sweepBudget || t.mayPurge(ex, req) != nil:
		return perdurev1.PurgeState_PURGE_STATE_LEFT, 0
	case h.Events > left:
		return 0, h.Events
	case t.purgeLeaf(ex, in):
		return perdurev1.PurgeState_PURGE_STATE_DELETED, h.Events
	}
	return perdurev1.PurgeState_PURGE_STATE_LEFT, h.Events
}
