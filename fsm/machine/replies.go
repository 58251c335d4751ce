package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// replyRetentionMS is how long the machine stores a reply (machine time), within Config.MaxReplies and
// Config.MaxReplyBytes.
const replyRetentionMS = 10 * 60 * 1000

// clockSlackMS is how far the caller's clock may have drifted from the machine's between two attempts.
const clockSlackMS = 5_000

// repeated looks for the answer to an earlier attempt of the same request. A retry whose answer may have been
// evicted gets an unknown outcome as its answer; it never runs again.
func (t *txn) repeated(cmd *commandv1.Command, r rule) (reply *commandv1.Reply, repeated bool, refused *api.Error) {
	rid := cmd.GetRequest().GetId()
	if !r.stored || len(rid) == 0 {
		return nil, false, nil
	}
	key := append(append(t.m.arena.open(), byte(keys.Reply)), rid...)
	if b, ok := t.reply(key); ok {
		stored, err := state.DecodeReply(b)
		if err != nil {
			state.PanicCorrupt("stored reply", key, err)
		}
		if short := stored.Reply.GetPromiseAnswer(); short != nil {
			whole, refused := t.wholeAnswer(cmd, short)
			return whole, true, refused
		}
		return stored.Reply, true, nil
	}
	age := min(int64(min(cmd.GetRequest().GetAgeMs(), uint64(state.Never))), t.now)
	if age > 0 && t.m.evicted > 0 && t.now-age-clockSlackMS <= t.m.evicted {
		return nil, true, api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN,
			"this retry comes %d ms after the first attempt and answers that old are forgotten: it may have been applied", age).
			With("namespace", cmd.Namespace).With("id", cmd.Id)
	}
	return nil, false, nil
}

// reply reads a stored reply.
func (t *txn) reply(key []byte) ([]byte, bool) {
	if t.none(key) {
		return nil, false
	}
	return t.get(key)
}

// bindsRetries reports whether a refusal must be stored as the request's answer. A retry's must: an earlier
// attempt may still be in flight and could otherwise apply after its caller was refused. A temporary refusal
// (retry later, or elsewhere) is not stored.
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

// storeReply stores the answer of a request.
func (t *txn) storeReply(cmd *commandv1.Command, reply *commandv1.Reply) {
	rid := cmd.GetRequest().GetId()
	if len(rid) == 0 {
		return
	}
	sized := t.m.feature >= state.LevelReplies
	if sized {
		reply = t.shortAnswer(cmd, reply)
	}
	a := &t.m.arena
	b, err := state.StoredReply{At: t.now, Reply: reply}.Append(a.open())
	if err != nil {
		panic(state.Fault{Err: err})
	}
	b = a.close(b)
	t.put(a.close(append(append(a.open(), byte(keys.Reply)), rid...)), b)
	size := []byte{}
	if sized {
		n := uint64(2*len(rid) + len(b) + state.ReplyCost)
		size = a.close(keys.AppendUint64(a.open(), n))
		t.m.replyBytes += n
		t.m.putMeta(state.MetaReplyBytes, t.m.replyBytes)
	}
	t.put(a.close(append(keys.AppendUint64(append(a.open(), byte(keys.ReplyAge)), uint64(max(t.now, 0))), rid...)), size)
	t.m.replies++
	t.m.putMeta(state.MetaReplies, t.m.replies)
	if t.m.replies > t.m.cfg.MaxReplies || t.m.replyBytes > t.m.cfg.MaxReplyBytes {
		t.evictReplies()
	}
}

// shortAnswer is the stored form of an answer. For a promise it stores only the name and whether the promise
// was pending: parameter and value can take megabytes for each request, and a promise changes only once, when
// it settles.
func (t *txn) shortAnswer(cmd *commandv1.Command, reply *commandv1.Reply) *commandv1.Reply {
	shown := reply.GetPromise().GetPromise()
	task, fence := reply.GetClientTask(), reply.GetFence()
	switch {
	case task.GetPromise() != nil:
		shown = task.Promise
	case fence.GetPromise() != nil:
		shown = fence.Promise
	}
	if shown == nil {
		return reply
	}
	p, ok := t.store(cmd.Namespace).Promise(shown.Id)
	pending := shown.State == perdurev1.PromiseState_PROMISE_STATE_PENDING
	if !ok || !pending && p.State == recovery.PromisePending {
		return reply
	}
	short := &commandv1.PromiseAnswer{Id: shown.Id, Incarnation: p.Incarnation, Pending: pending, Fence: fence != nil}
	if task != nil {
		short.ClientTask = &perdurev1.ClientTaskResponse{Task: task.Task}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_PromiseAnswer{PromiseAnswer: short}}
}

// wholeAnswer rebuilds an answer from its stored form. If a later incarnation has replaced the promise, the
// answer is that the outcome is unknown: the request was applied, but its promise no longer exists.
func (t *txn) wholeAnswer(cmd *commandv1.Command, short *commandv1.PromiseAnswer) (*commandv1.Reply, *api.Error) {
	p, ok := t.store(cmd.Namespace).Promise(short.Id)
	if !ok || p.Incarnation != short.Incarnation {
		return nil, api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN,
			"the first attempt was applied, and its answer showed a promise that has given way to a later one").
			With("namespace", cmd.Namespace).With("id", short.Id)
	}
	if short.Pending {
		p.State, p.Value, p.SettledAt = recovery.PromisePending, nil, 0
	}
	whole := promiseReply(cmd.Namespace, p)
	switch {
	case short.ClientTask != nil:
		out := &perdurev1.ClientTaskResponse{Task: short.ClientTask.Task, Promise: whole.GetPromise().Promise}
		return &commandv1.Reply{Kind: &commandv1.Reply_ClientTask{ClientTask: out}}, nil
	case short.Fence:
		out := &perdurev1.FenceClientTaskResponse{Promise: whole.GetPromise().Promise}
		return &commandv1.Reply{Kind: &commandv1.Reply_Fence{Fence: out}}, nil
	}
	return whole, nil
}

// evictReplies deletes answers that are too old or too many, a bounded number per call.
func (t *txn) evictReplies() {
	const atOnce = 512
	// Answers are stored and deleted in time order, so only tombstones are before the newest deleted one. The
	// scan starts there, since one from the front would pass them each time.
	prefix := []byte{byte(keys.ReplyAge)}
	from := keys.AppendUint64(prefix[:1:1], uint64(max(t.m.evicted, 0)))
	over := int64(t.m.replies) - int64(t.m.cfg.MaxReplies)
	type old struct {
		at  int64
		rid []byte
	}
	var expired []old
	bytes := t.m.replyBytes
	t.scan(from, keys.After(prefix), func(key, size []byte) bool {
		at, rid, err := keys.CutUint64(key[1:])
		if err != nil {
			state.PanicCorrupt("stored reply's age", key, err)
		}
		if int64(len(expired)) >= over && bytes <= t.m.cfg.MaxReplyBytes && int64(at) > t.now-replyRetentionMS {
			return false
		}
		n, err := state.ReplySize(size)
		if err != nil {
			state.PanicCorrupt("stored reply's age", key, err)
		}
		bytes -= min(n, bytes)
		expired = append(expired, old{int64(at), append([]byte(nil), rid...)})
		return len(expired) < atOnce
	})
	if len(expired) == 0 {
		return
	}
	for _, g := range expired {
		t.remove(keys.ReplyOf(g.rid))
		t.remove(keys.ReplyAgeOf(g.at, g.rid))
		t.m.evicted = max(t.m.evicted, g.at)
	}
	t.m.replies -= uint64(len(expired))
	t.m.putMeta(state.MetaReplies, t.m.replies)
	if bytes != t.m.replyBytes {
		t.m.replyBytes = bytes
		t.m.putMeta(state.MetaReplyBytes, bytes)
	}
	t.m.putMeta(state.MetaEvicted, uint64(t.m.evicted))
}
