package durable

import (
	"perdure/id"
	"perdure/journal"

	perdurev1 "perdure/api/perdure/v1"
)

// openOperation begins an operation that others complete: a wait for a signal, a promise, a call of an entity
// that is held. It reports false for one that the fake completes at once. The lock is held.
func (f *fakeServer) openOperation(ex *fakeExec, s *perdurev1.InvokeScheduled, send *perdurev1.Send, add func(*perdurev1.Event)) bool {
	if s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SIGNAL {
		if _, _, buffered := ex.j.NextReceipt(s.GetFunctionName()); buffered {
			add(completed(s.GetPromiseId(), 1, &perdurev1.Outcome{}))
		}
		return true
	}
	switch k := send.GetWhat().(type) {
	case *perdurev1.Send_NewPromise, *perdurev1.Send_AwaitedPromise:
		return f.children[s.GetFunctionName()] == nil
	case *perdurev1.Send_EntityCall:
		return k.EntityCall.GetId() == heldEntity
	case *perdurev1.Send_Cancel:
		result := byte(0)
		if f.cancelOperation(ex, k.Cancel.GetOperationId(), add) {
			result = 1
		}
		add(completed(s.GetPromiseId(), 1, &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte{result}}}))
		return true
	}
	return false
}

// heldEntity answers no call.
const heldEntity = "held@x"

// cancelOperation ends an operation as the machine does, and reports whether it was open.
func (f *fakeServer) cancelOperation(ex *fakeExec, operation string, add func(*perdurev1.Event)) bool {
	p := id.PromiseID(operation)
	if fired, timer := ex.j.Timer(p); timer {
		open := !fired && !ex.cancelled[operation]
		if ex.cancelled == nil {
			ex.cancelled = map[string]bool{}
		}
		ex.cancelled[operation] = true
		return open
	}
	inv, ok := ex.j.Invoke(p)
	switch {
	case !ok || inv.Completed:
		return false
	case inv.Kind != journal.InvokeFunction:
		add(completed(operation, 1, failure(TypeCancelled, "cancelled by its caller")))
	case f.execs[operation].j.Status() != journal.StatusCancelling:
		f.cancelLocked(f.execs[operation], "cancelled by its caller")
	}
	return true
}

// signalFutures completes the waits for a signal of a name that an execution has by futures. The lock is held.
func (f *fakeServer) signalFutures(ex *fakeExec, name string) {
	if _, _, buffered := ex.j.NextReceipt(name); !buffered {
		return
	}
	for n := range ex.j.NextChild() {
		p := id.PromiseID(ex.id).Child(n)
		if inv, ok := ex.j.Invoke(p); ok && inv.Kind == journal.InvokeSignal && !inv.Completed && f.nameOf(ex, string(p)) == name {
			f.append(ex, completed(string(p), 1, &perdurev1.Outcome{}))
		}
	}
	f.resume(ex)
}

// nameOf is the function name of an invocation.
func (f *fakeServer) nameOf(ex *fakeExec, promise string) string {
	for _, e := range ex.entries {
		if s := e.GetEvent().GetInvokeScheduled(); s.GetPromiseId() == promise {
			return s.GetFunctionName()
		}
	}
	return ""
}
