package partition

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/auditor"
)

func newAuditor(n *Node) *auditor.Auditor {
	return auditor.New(auditor.Options{
		NodeID: n.identity.NodeID, Partitions: n.identity.Partitions, Share: n.cfg.AuditShare, Interval: n.cfg.AuditInterval,
		Busy: newActivity(n).busy, Clock: n.clock, Log: n.log, Lifetime: n.lifetime,
		Replicas: func() (out []auditor.Replica) {
			for _, r := range n.router.Replicas() {
				out = append(out, r)
			}
			return out
		},
	})
}

// Verify implements Peers.
func (s *peerService) Verify(_ *perdurev1.VerifyRequest, stream commandv1.Peers_VerifyServer) error {
	return s.n.auditor.Verify(stream.Context(), stream.Send)
}

// Verify has every member check its replicas and sends their events, each member's in its order. A member
// that cannot check is an event, not an error; errors are ctx's and send's. It calls send from one goroutine
// at a time.
func (o *Operator) Verify(ctx context.Context, in *perdurev1.VerifyRequest, send func(*perdurev1.VerifyEvent) error) error {
	n := o.n
	members := n.cluster.Members()
	if dir := n.Directory(); dir != nil {
		members = dir.Members
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	one := func(ev *perdurev1.VerifyEvent) error {
		mu.Lock()
		defer mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		err := send(ev)
		if err != nil {
			cancel(err)
		}
		return err
	}
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() {
			if err := o.verifyMember(ctx, m, in, one); err != nil && ctx.Err() == nil {
				if e, ours := api.FromStatus(err); ours {
					err = e
				}
				_ = one(&perdurev1.VerifyEvent{NodeId: m.NodeId, Kind: &perdurev1.VerifyEvent_Refused{Refused: err.Error()}})
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (o *Operator) verifyMember(ctx context.Context, m *commandv1.DirectoryMember, in *perdurev1.VerifyRequest, send func(*perdurev1.VerifyEvent) error) error {
	if m.ServerId == o.n.identity.ServerID {
		return o.n.auditor.Verify(ctx, send)
	}
	client, err := memberClient{o.n}.reach(ctx, m)
	if err != nil {
		return err
	}
	return receiveAudit(func() (auditStream, error) { return client.Verify(ctx, in) }, send)
}

// auditStream is what receiveAudit needs of a stream of a member's events.
type auditStream interface {
	Recv() (*perdurev1.VerifyEvent, error)
}

// receiveAudit passes on a member's events until its last. It opens the stream again, once, when the connection broke
// before the first event: after a fault of the network the connection may be found dead only by using it.
func receiveAudit(open func() (auditStream, error), send func(*perdurev1.VerifyEvent) error) error {
	for attempt, sent := 1, false; ; attempt++ {
		stream, err := open()
		for err == nil {
			var ev *perdurev1.VerifyEvent
			if ev, err = stream.Recv(); err != nil {
				break
			}
			if err := send(ev); err != nil || ev.GetDone() {
				return err
			}
			sent = true
		}
		if attempt == 2 || sent || status.Code(err) != codes.Unavailable {
			return err
		}
	}
}
