package group

import (
	"context"
	"errors"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/partition/workers"
	"perdure/recovery"
)

// ReturnTask puts a task back into its queue because another node, which has the worker's session, did not send it to
// the worker. term is the term in which the task was acquired; if it is over, or the task was sent again, the error is
// NotServing. It blocks until the task is queued or ctx ends. Other errors: see Propose.
func (r *Replica) ReturnTask(ctx context.Context, term uint64, release *commandv1.Command) (*commandv1.Reply, error) {
	reply, err := r.dispatcher.Return(ctx, forWorkers{r}, term, release)
	if errors.Is(err, workers.ErrNotReturned) {
		return nil, r.NotServing()
	}
	return reply, err
}

// forWorkers is a replica as the dispatcher sees it.
type forWorkers struct{ *Replica }

// ID implements workers.Replica.
func (r forWorkers) ID() uint32 { return r.id }

// Context implements workers.Replica.
func (r forWorkers) Context() (context.Context, context.CancelFunc) { return r.lifetime() }

// ProposeIn implements workers.Replica.
func (r forWorkers) ProposeIn(ctx context.Context, l workers.Leadership, cmd *commandv1.Command) (*commandv1.Reply, error) {
	return r.proposeUnder(ctx, l.(*leadership), cmd)
}

// Leadership implements workers.Replica.
func (r forWorkers) Leadership() workers.Leadership { return orNone(r.serving()) }

// EachHeld implements workers.Replica.
func (r forWorkers) EachHeld(visit func(machine.Assignment)) error {
	return r.store.View(func(view state.Reader) error {
		return query.EachHeld(view, func(ns string, task recovery.Task) {
			visit(machine.Assignment{Worker: task.PID, Function: task.Target, Token: wire.Token(ns, task)})
		})
	})
}

// Task implements workers.Replica.
func (r forWorkers) Task(ctx context.Context, token *perdurev1.TaskToken, fromSeq uint64) (*perdurev1.Task, error) {
	reply, _, err := r.Query(ctx, Stale, &commandv1.Query{Namespace: token.Namespace, Id: token.Id,
		Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: token.Incarnation, Version: token.Version, FromSeq: fromSeq}}})
	if err != nil {
		return nil, err
	}
	return reply.GetTask(), nil
}

// orNone is a leadership for the dispatcher, which compares with nil.
func orNone(l *leadership) workers.Leadership {
	if l == nil {
		return nil
	}
	return l
}

// Replica implements workers.Leadership.
func (l *leadership) Replica() workers.Replica { return l.r.member }

// Term implements workers.Leadership.
func (l *leadership) Term() uint64 { return l.term }
