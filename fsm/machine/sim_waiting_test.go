package machine

import (
	"fmt"
	"slices"
	"strings"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/journal"
)

// The simulator's programs call, signal and lock entities here, cancel open waits, restart, and continue as new.

// accountIDs are the entities of the simulation.
var accountIDs = []string{"acc@0", "acc@1", "acc@2", "acc@3"}

// writeEntities draws the accounts of an operation: one, or those of a section.
func writeEntities(draw func(n int) int, op *simOp) {
	from := draw(len(accountIDs))
	op.target = strings.Join(accountIDs[from:min(len(accountIDs), from+1+draw(3))], ",")
	if op.kind != simSection {
		op.target = accountIDs[from]
	}
}

// request records a one-way operation, and reports its number and whether its result is there.
func (r *run) request(name, input string, s *perdurev1.Send) (n uint32, done bool) {
	n, p, rec, known := r.take()
	if !known {
		r.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SEND, name, input, "attempts=1"))
		s.PromiseId = p
		r.c.Sends = append(r.c.Sends, s)
	}
	return n, rec.Resolved
}

func askAccount(account, operation string) *perdurev1.Send {
	return &perdurev1.Send{What: &perdurev1.Send_EntityCall{EntityCall: &perdurev1.EntityCall{Id: account, Operation: operation, Input: []byte("1")}}}
}

// askEntity calls an account, or signals it.
func (r *run) askEntity(op simOp) {
	if op.kind == simTell {
		r.request("etell", op.target, &perdurev1.Send{What: &perdurev1.Send_EntitySignal{EntitySignal: &perdurev1.EntitySignal{Id: op.target, Operation: "add", Input: []byte("1")}}})
		r.acc.op(op)
		return
	}
	if n, done := r.request("ecall", op.target, askAccount(op.target, "add")); !done {
		r.wait(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, n)
	}
	r.acc.op(op)
}

// section locks accounts, calls each, and unlocks them.
func (r *run) section(op simOp) {
	accounts := strings.Split(op.target, ",")
	n, granted := r.request("lock", op.target, &perdurev1.Send{What: &perdurev1.Send_EntityLocks{EntityLocks: &perdurev1.EntityLocks{Ids: accounts}}})
	if !granted {
		r.wait(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, n)
		return
	}
	var open []uint32
	for _, k := range accounts {
		if n, done := r.request("ecall", k, askAccount(k, "get")); !done {
			open = append(open, n)
		}
	}
	if len(open) > 0 {
		r.wait(perdurev1.AwaitKind_AWAIT_KIND_ALL, open...)
		return
	}
	r.request("unlock", "", &perdurev1.Send{What: &perdurev1.Send_EntityUnlock{EntityUnlock: &perdurev1.EntityUnlock{}}})
	r.acc.op(op)
}

// future waits for a signal beside the timer of the operation, and cancels the wait unless the signal has come.
func (r *run) future(op simOp) {
	n, p, rec, known := r.take()
	if !known {
		r.add(scheduled(p, perdurev1.InvokeKind_INVOKE_KIND_SIGNAL, op.name, "", "attempts=1"))
	}
	timer, t, fired, known := r.take()
	if !known {
		r.add(&perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: t, DurationMs: op.timeout}}})
	}
	if !rec.Resolved && !fired.Resolved {
		r.wait(perdurev1.AwaitKind_AWAIT_KIND_ANY, n, timer)
		return
	}
	// The loser is cancelled, whichever it is by now: the next one may have come, too.
	for _, loser := range []string{p, t} {
		r.request("cancel", loser, &perdurev1.Send{What: &perdurev1.Send_Cancel{Cancel: &perdurev1.CancelOperation{OperationId: loser}}})
	}
	r.acc.op(op)
}

// continueAsNew is the next incarnation, in a commit of its own.
func (r *run) continueAsNew() {
	if r.done = true; len(r.c.Events) > 0 {
		r.cut = true
		return
	}
	r.c.ContinueAsNew = &perdurev1.ContinueAsNew{Input: fmt.Append(nil, r.program.then)}
}

// actRestart restarts a root, open or ended. Its programs signal nobody, or the same signal would come twice.
func (s *simulation) actRestart() {
	x := s.roots[s.draw(len(s.roots))]
	h, ok := takeCensus(s.at(x).state).headers[x]
	if !ok || s.book.sends(s.programOf(x)) {
		return
	}
	cmd := restartCmd(s.request(), x, fromStart, 0)
	switch s.draw(3) {
	case 0:
		cmd.GetRestart().From = fromFailure
	case 1:
		cmd.GetRestart().From, cmd.GetRestart().Event = fromEvent, uint64(1+s.draw(int(h.Events)))
	}
	cmd.GetRestart().NewChildren = s.draw(2) == 0
	s.restarted[x] = true
	s.send(s.placed(cmd), cmd, func(r *commandv1.Reply) {
		if wire.ReplyError(r) == nil {
			s.stats.restarted++
		}
	})
}

// accountsIdle reports whether no account is locked and none has an operation to run.
func (s *simulation) accountsIdle() bool {
	return !slices.ContainsFunc(accountIDs, func(k string) bool { e := s.entity(k); return e.Lock != nil || e.Queued > 0 })
}

// countRequests counts what executions have asked of others.
func (s *simulation) countRequests() {
	for _, p := range s.parts {
		c := takeCensus(p.state)
		for x, h := range c.headers {
			if h.Former != 0 && h.FailedAttempts == 0 && !s.restarted[x] && h.Parent == "" && h.Kind == state.KindFunction {
				s.stats.continued++
			}
			for _, e := range c.journals[x] {
				if o, ok := e.Event.(journal.InvokeScheduled); ok && o.Invoke == journal.InvokeSend {
					s.stats.requests[o.Function]++
				}
			}
		}
	}
}

// renumbered reports whether a root's incarnation follows another one. Each incarnation numbers its deliveries from 1.
func (s *simulation) renumbered(objectID string) bool {
	b, ok, _ := s.at(objectID).m.State().Get(keys.Of(keys.Header, ns, objectID))
	h, err := state.DecodeHeader(b)
	return !ok || err != nil || h.Former != 0 && h.FailedAttempts == 0 && id.Origin(objectID) == objectID
}
