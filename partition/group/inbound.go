package group

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/partition/refusal"
)

// inbound keeps shipments from entering the log twice. The source of a channel repeats a shipment that was
// not answered in time, while the first attempt may still wait for this log. So one shipment of a channel is
// proposed at a time. The next one waits for its end, and carries only messages that the inbox has not
// applied by then. The partition enters the cut of its messages first: see package cut.
type inbound struct {
	mu sync.Mutex
	// busy holds a channel of capacity one for each source that has ever sent a shipment; a value in it is a
	// shipment in flight.
	busy map[uint32]chan struct{}
}

func (in *inbound) of(source uint32) chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.busy == nil {
		in.busy = map[uint32]chan struct{}{}
	}
	c := in.busy[source]
	if c == nil {
		c = make(chan struct{}, 1)
		in.busy[source] = c
	}
	return c
}

// receive proposes those messages of a shipment that were not applied before. It blocks like Propose. When ctx ends
// while an earlier shipment of the channel is under way, nothing of this one was proposed.
func (r *proposer) receive(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	busy := r.inbound.of(cmd.GetDeliver().Source)
	select {
	case busy <- struct{}{}:
	case <-ctx.Done():
		return nil, refusal.TryLater(r.id, "an earlier shipment of the channel is under way")
	case <-r.stopped:
		return nil, refusal.Stopping(r.id)
	}
	fresh, applied, err := r.fresh(cmd)
	if err != nil || fresh == nil {
		<-busy
		if err != nil {
			return nil, err
		}
		return &commandv1.Reply{Kind: &commandv1.Reply_Deliver{Deliver: applied}}, nil
	}
	type result struct {
		reply *commandv1.Reply
		err   error
	}
	done := make(chan result, 1)
	go func() {
		// Propose without the caller's deadline: the next shipment must not overtake this one.
		ctx := context.WithoutCancel(ctx)
		var reply *commandv1.Reply
		err := r.enterCut(ctx, latestCut(fresh.GetDeliver().Messages))
		if err == nil {
			reply, err = r.propose(ctx, fresh)
		}
		<-busy
		done <- result{reply, err}
	}()
	select {
	case res := <-done:
		return res.reply, res.err
	case <-ctx.Done():
		return nil, refusal.Unknown(r.id, "the caller stopped waiting ("+ctx.Err().Error()+")")
	}
}

// fresh returns a shipment without the messages that were applied before. If that leaves none, it returns nil
// and the answer. Applied messages are committed, so the answer holds whichever node leads now.
func (r *proposer) fresh(cmd *commandv1.Command) (*commandv1.Command, *commandv1.DeliverReply, error) {
	d := cmd.GetDeliver()
	if halted := r.Halted(); halted != nil {
		return nil, nil, refusal.Halted(r.id, halted)
	}
	if r.serving() == nil {
		return nil, nil, r.NotServing()
	}
	var epoch, through, in uint64
	if err := r.store.Peek(func(st state.Reader) error {
		var err, err2 error
		epoch, through, err = query.Delivered(st, d.Source)
		in, err2 = state.MetaNumber(st, state.MetaCut)
		return errors.Join(err, err2)
	}); err != nil {
		return nil, nil, refusal.TryLater(r.id, "the inbox cannot be read: "+err.Error())
	}
	known := 0
	for known < len(d.Messages) && d.Epoch == epoch && d.Messages[known].Seq <= through {
		known++
	}
	switch {
	case known == 0:
		return cmd, nil, nil
	case known == len(d.Messages):
		return nil, &commandv1.DeliverReply{Through: through, Cut: in}, nil
	}
	out := proto.CloneOf(&commandv1.Command{Namespace: cmd.Namespace, Id: cmd.Id, Request: cmd.Request})
	out.Kind = &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{Source: d.Source, Epoch: d.Epoch, Messages: d.Messages[known:]}}
	return out, nil, nil
}
