package machine

import (
	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/keys"
)

// Stored replies are kept for this long (machine time), and at most Config.MaxReplies of them.
const replyLifeMS = 10 * 60 * 1000

// clockSlackMS is how far the caller's clock may have drifted from the machine's between two attempts.
const clockSlackMS = 5_000

var wire = proto.MarshalOptions{Deterministic: true}

// repeated looks for the answer to an earlier attempt of the same request. A retry that comes after its
// answer may have been forgotten is told that the outcome is unknown; it is never run again.
func (t *txn) repeated(cmd *commandv1.Command, r rule) (reply *commandv1.Reply, repeated bool, refused *api.Error) {
	rid := cmd.GetRequest().GetId()
	if !r.stored || len(rid) == 0 {
		return nil, false, nil
	}
	key := keys.ReplyOf(rid)
	if b, ok := t.get(key); ok {
		d := decoder{b: b}
		d.i64()
		stored := &commandv1.Reply{}
		if err := proto.Unmarshal(d.bytes(), stored); err != nil || d.end() != nil {
			corrupt("stored reply", key, &CorruptError{What: "stored reply", Key: key, Detail: "cannot be decoded"})
		}
		return stored, true, nil
	}
	age := min(int64(min(cmd.GetRequest().GetAgeMs(), uint64(Never))), t.now)
	if age > 0 && t.m.evicted > 0 && t.now-age-clockSlackMS <= t.m.evicted {
		return nil, true, api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN,
			"this retry comes %d ms after the first attempt and answers that old are forgotten: it may have been applied", age).
			With("namespace", cmd.Namespace).With("id", cmd.Id)
	}
	return nil, false, nil
}

// bindsRetries reports whether a refusal must be kept as the request's answer. A retry's must: an earlier attempt may
// still be under way, and would otherwise be applied after its caller was told that nothing was. What is refused
// for now only (to be tried again, or elsewhere) binds nobody.
func bindsRetries(cmd *commandv1.Command, refused *api.Error) bool {
	if cmd.GetRequest().GetAgeMs() == 0 {
		return false
	}
	switch refused.Reason {
	case perdurev1.Reason_REASON_TRY_LATER, perdurev1.Reason_REASON_NOT_LEADER, perdurev1.Reason_REASON_OVERLOADED, perdurev1.Reason_REASON_OUTCOME_UNKNOWN:
		return false
	}
	return true
}

// storeReply keeps the answer of a request.
func (t *txn) storeReply(cmd *commandv1.Command, reply *commandv1.Reply) {
	rid := cmd.GetRequest().GetId()
	if len(rid) == 0 {
		return
	}
	b, err := wire.Marshal(reply)
	if err != nil {
		panic(fault{err})
	}
	e := encoder{}
	e.i64(t.now)
	e.bytes(b)
	t.put(keys.ReplyOf(rid), e.b)
	t.put(keys.ReplyAgeOf(t.now, rid), []byte{})
	t.m.replies++
	t.m.putMeta(metaReplies, t.m.replies)
	if t.m.replies > t.m.cfg.MaxReplies {
		t.evictReplies()
	}
}

// evictReplies forgets answers that are too old or too many, a bounded number at a time.
func (t *txn) evictReplies() {
	const atOnce = 512
	// Answers are kept and forgotten in the order of time, so nothing stands before the newest that was
	// forgotten: only the traces of what was, which a scan from the front would walk over each time.
	prefix := []byte{byte(keys.ReplyAge)}
	from := keys.AppendUint64(prefix[:1:1], uint64(max(t.m.evicted, 0)))
	over := int64(t.m.replies) - int64(t.m.cfg.MaxReplies)
	type old struct {
		at  int64
		rid []byte
	}
	var gone []old
	t.scan(from, keys.After(prefix), func(key, _ []byte) bool {
		at, rid, err := keys.CutUint64(key[1:])
		if err != nil {
			corrupt("stored reply's age", key, err)
		}
		if int64(len(gone)) >= over && int64(at) > t.now-replyLifeMS {
			return false
		}
		gone = append(gone, old{int64(at), append([]byte(nil), rid...)})
		return len(gone) < atOnce
	})
	if len(gone) == 0 {
		return
	}
	for _, g := range gone {
		t.remove(keys.ReplyOf(g.rid))
		t.remove(keys.ReplyAgeOf(g.at, g.rid))
		t.m.evicted = max(t.m.evicted, g.at)
	}
	t.m.replies -= uint64(len(gone))
	t.m.putMeta(metaReplies, t.m.replies)
	t.m.putMeta(metaEvicted, uint64(t.m.evicted))
}
