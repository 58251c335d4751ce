package query

import (
	"math"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

func (x *Read) result() (*commandv1.QueryReply, *api.Error) {
	h, ok := x.Header(x.Query.Namespace, x.Query.Id)
	if !ok {
		return nil, wire.NotFound(x.Query.Namespace, x.Query.Id)
	}
	p, inline := h.InlinePromise() // of a short execution: no row of it needs to be looked for
	if !inline {
		p, _ = x.promiseOf(h.ID)
	}
	// An earlier incarnation than the one that is asked for has no result here.
	done := p.State.Settled() && h.Incarnation >= x.Query.GetResult().GetIncarnation()
	out := &perdurev1.ResultResponse{Status: x.status(h, p), Done: done, CleanupId: h.CleanupID(), Incarnation: h.Incarnation}
	if out.Done {
		out.Outcome = wire.EncodeOutcome(state.OutcomeOf(p))
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Result{Result: out}}, nil
}

// promise answers a promise by id. A local step has no stored promise: promise derives it from the
// execution's journal.
func (x *Read) promise() (*commandv1.QueryReply, *api.Error) {
	p, ok := x.promiseOf(x.Query.Id)
	if !ok {
		p, ok = x.stepPromise()
	}
	if !ok {
		return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "no promise %q in namespace %q", x.Query.Id, x.Query.Namespace).
			With("namespace", x.Query.Namespace).With("id", x.Query.Id)
	}
	if err := wire.TokenOf(x.Query.Namespace, p, x.Query.GetPromise().GetIncarnation()); err != nil {
		return nil, err
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Promise{
		Promise: &perdurev1.PromiseResponse{Promise: wire.EncodePromise(x.Query.Namespace, p)}}}, nil
}

func (x *Read) stepPromise() (recovery.Promise, bool) {
	parent, ok := state.ParentOf(x.Query.Id)
	if !ok {
		return recovery.Promise{}, false
	}
	h, ok := x.Header(x.Query.Namespace, parent)
	if !ok {
		return recovery.Promise{}, false
	}
	p := recovery.Promise{ID: x.Query.Id, Incarnation: h.Incarnation, State: recovery.PromisePending, TimeoutAt: state.Never}
	found := false
	x.Entries(x.Query.Namespace, &h, 0, math.MaxUint64, func(key, value []byte) bool {
		entry, err := journal.DecodeEntry(value)
		if err != nil {
			state.PanicCorrupt("journal", key, err)
		}
		switch e := entry.Event.(type) {
		case journal.InvokeScheduled:
			if e.Promise == id.PromiseID(x.Query.Id) {
				found, p.CreatedAt, p.Param = true, entry.Time, e.Input
			}
		case journal.InvokeCompleted:
			if e.Promise == id.PromiseID(x.Query.Id) {
				p.State, p.SettledAt, p.Value = recovery.PromiseResolved, entry.Time, e.Result
				if o, err := recovery.DecodeOutcome(e.Result); err == nil && o.Failure != nil {
					p.State = recovery.PromiseRejected
				}
				return false
			}
		}
		return true
	})
	return p, found
}
