package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/partition/group"
)

type promises struct {
	perdurev1.UnimplementedPromisesServer
	s *Server
}

// propose proposes a command unless there is an error instead of one.
func (p *promises) propose(ctx context.Context, cmd *commandv1.Command, err error) (*perdurev1.PromiseResponse, error) {
	if err != nil {
		return nil, err
	}
	reply, err := p.s.propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return reply.GetPromise(), nil
}

// Create implements Promises.
func (p *promises) Create(ctx context.Context, in *perdurev1.CreatePromiseRequest) (*perdurev1.PromiseResponse, error) {
	cmd, err := createPromiseCommand(proto.CloneOf(in))
	return p.propose(ctx, cmd, err)
}

// createPromiseCommand checks a request and returns its command, which takes over in.
func createPromiseCommand(in *perdurev1.CreatePromiseRequest) (*commandv1.Command, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, rootID(in.Id), payload("param", in.Param), tags(in.Tags)); err != nil {
		return nil, err
	}
	if in.TimeoutMs <= 0 {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a promise needs a timeout greater than 0").With("id", in.Id)
	}
	in.Request = nil
	return &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_CreatePromise{CreatePromise: in}}, nil
}

// Get implements Promises.
func (p *promises) Get(ctx context.Context, in *perdurev1.GetPromiseRequest) (*perdurev1.PromiseResponse, error) {
	in = proto.CloneOf(in)
	in.Id, in.Incarnation, _ = id.CutToken(in.Id)
	ns, err := namespace(in.Namespace)
	if err := firstError(err, promiseID(in.Id)); err != nil {
		return nil, err
	}
	return p.get(ctx, ns, in)
}

func (p *promises) get(ctx context.Context, ns string, in *perdurev1.GetPromiseRequest) (*perdurev1.PromiseResponse, error) {
	reply, index, err := p.s.router.Query(ctx, level(in.Level), &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Promise{Promise: in}})
	if err != nil {
		return nil, err
	}
	out := reply.GetPromise()
	out.ReadIndex = index
	return out, nil
}

// Settle implements Promises.
func (p *promises) Settle(ctx context.Context, in *perdurev1.SettlePromiseRequest) (*perdurev1.PromiseResponse, error) {
	cmd, err := settlePromiseCommand(proto.CloneOf(in))
	return p.propose(ctx, cmd, err)
}

// settlePromiseCommand checks a request and returns its command, which takes over in.
func settlePromiseCommand(in *perdurev1.SettlePromiseRequest) (*commandv1.Command, error) {
	in.Id, in.Incarnation, in.Secret = id.CutToken(in.Id)
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	value, verr := settlement(in)
	if err := firstError(err, rerr, promiseID(in.Id), payload("value", in.Value.GetValue()), failure("failure", in.Value.GetFailure()), verr); err != nil {
		return nil, err
	}
	in.Request, in.Value = nil, value
	return &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_SettlePromise{SettlePromise: in}}, nil
}

// settlement checks that the state and the value of a settlement go together. It names the failure of one
// that gives none, so that a waiting caller does not take it for a value.
func settlement(in *perdurev1.SettlePromiseRequest) (*perdurev1.Outcome, error) {
	var kind string
	switch in.State {
	case perdurev1.PromiseState_PROMISE_STATE_RESOLVED:
		if in.Value.GetFailure() != nil {
			return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a promise is resolved with a value, not with a failure").With("id", short(in.Id))
		}
		return in.Value, nil
	case perdurev1.PromiseState_PROMISE_STATE_REJECTED:
		kind = "rejected"
	case perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED:
		kind = "cancelled"
	default:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a promise is settled to resolved, rejected or canceled, not %s", in.State).With("id", short(in.Id))
	}
	switch in.Value.GetResult().(type) {
	case *perdurev1.Outcome_Value:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a promise is %s with a failure, not with a value", kind).With("id", short(in.Id))
	case nil:
		return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: kind, Message: kind}}}, nil
	}
	return in.Value, nil
}

// Await implements Promises.
func (p *promises) Await(ctx context.Context, in *perdurev1.AwaitPromiseRequest) (*perdurev1.PromiseResponse, error) {
	promise, incarnation, _ := id.CutToken(in.Id)
	ns, err := namespace(in.Namespace)
	if err := firstError(err, promiseID(promise), duration("wait", in.WaitMs)); err != nil {
		return nil, err
	}
	reply, index, err := p.s.await(ctx, group.Linearizable, &commandv1.Query{Namespace: ns, Id: promise,
		Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{Namespace: ns, Id: promise, Incarnation: incarnation}}}, in.WaitMs)
	if err != nil {
		return nil, err
	}
	out := reply.GetPromise()
	out.ReadIndex = index
	return out, nil
}
