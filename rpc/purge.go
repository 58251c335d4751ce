package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Purge implements Executions.
func (e *executions) Purge(ctx context.Context, in *perdurev1.PurgeRequest) (*perdurev1.PurgeResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, anyID(in.Id)); err != nil {
		return nil, err
	}
	if in.EndedBeforeMs < 0 {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "ended before %d: must not be negative", in.EndedBeforeMs).With("id", in.Id)
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Purge{Purge: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetPurge(), nil
}
