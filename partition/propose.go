package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm"
	"perdure/fsm/machine"
)

// Group commit: an entry holds what waits when the log is free to take one, up to these bounds. Nothing
// is ever delayed to fill an entry; a lone command leaves at once.
const (
	maxEntryCommands = 64
	maxEntryBytes    = 64 << 10
	// maxInFlight entries of a group are under way: one is being written while the next is made.
	maxInFlight = 2
	// enqueueTimeout bounds the wait for Raft's main loop to take an entry.
	enqueueTimeout = 5 * time.Second
)

// proposal is one command on its way into the log, and its caller.
type proposal struct {
	cmd *commandv1.Command
	// lead is the leadership under which it came. It is proposed under no later one: its caller may have asked
	// another leader since, and may have believed a refusal.
	lead *leadership
	done chan proposalResult // buffered: answering never blocks
}

type proposalResult struct {
	reply *commandv1.Reply
	err   *api.Error
}

func (p *proposal) answer(reply *commandv1.Reply, err *api.Error) {
	p.done <- proposalResult{reply, err}
}

// flight is an entry that Raft has taken.
type flight struct {
	proposals []*proposal
	room      []booking
	future    raft.ApplyFuture
	started   time.Time
}

// Propose puts a command into the log and waits for its reply. A refusal by the rules, and every other
// failure, is an *api.Error. It blocks until the command is applied or ctx ends; when ctx ends after the
// log may have taken it the outcome is unknown.
func (r *Replica) Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	r.awaitServing(ctx)
	if cmd.GetDeliver() != nil {
		return r.receive(ctx, cmd)
	}
	return r.propose(ctx, cmd)
}

func (r *Replica) propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	p := &proposal{cmd: cmd, done: make(chan proposalResult, 1)}
	if err := r.enqueue(p); err != nil {
		return nil, err
	}
	select {
	case res := <-p.done:
		if res.err != nil {
			return nil, res.err
		}
		if refused := machine.ReplyError(res.reply); refused != nil {
			return nil, refused
		}
		return res.reply, nil
	case <-ctx.Done():
		return nil, errUnknownOutcome(r.id, "the caller stopped waiting ("+ctx.Err().Error()+")")
	case <-r.stopped:
		// The proposer answers what it has; only what it will never see ends here.
		select {
		case res := <-p.done:
			if res.err != nil {
				return nil, res.err
			}
			if refused := machine.ReplyError(res.reply); refused != nil {
				return nil, refused
			}
			return res.reply, nil
		default:
			return nil, errUnknownOutcome(r.id, "the node is stopping")
		}
	}
}

// enqueue hands a proposal to the proposer without waiting.
func (r *Replica) enqueue(p *proposal) error {
	if halted := r.halted(); halted != nil {
		return errHalted(r.id, halted)
	}
	if p.lead = r.serving(); p.lead == nil {
		return r.notServing()
	}
	select {
	case <-r.stopping:
		return errStopping(r.id)
	default:
	}
	select {
	case r.queue <- p:
		return nil
	default:
		r.metrics.Sheds.Inc()
		return errOverloaded(r.id)
	}
}

// proposeLoop makes entries of what waits.
func (r *Replica) proposeLoop() {
	defer close(r.flights)
	slots := r.slots
	for {
		var first *proposal
		select {
		case first = <-r.queue:
		case <-r.stopping:
			r.refuseQueued()
			return
		}
		select {
		case slots <- struct{}{}:
		case <-r.stopping:
			first.answer(nil, errStopping(r.id))
			r.refuseQueued()
			return
		}
		r.flights <- r.launch(r.gather(first))
	}
}

func (r *Replica) refuseQueued() {
	for {
		select {
		case p := <-r.queue:
			p.answer(nil, errStopping(r.id))
		default:
			return
		}
	}
}

// gather takes what else waits, within the bounds of an entry. A command above the bound travels alone.
func (r *Replica) gather(first *proposal) []*proposal {
	batch := []*proposal{first}
	size := proto.Size(first.cmd)
	for len(batch) < maxEntryCommands && size < maxEntryBytes {
		select {
		case p := <-r.queue:
			batch = append(batch, p)
			size += proto.Size(p.cmd)
		default:
			return batch
		}
	}
	return batch
}

// launch gives an entry to Raft.
func (r *Replica) launch(batch []*proposal) *flight {
	lead := r.serving()
	f := &flight{proposals: batch, started: r.clock.Now()}
	if lead == nil {
		return f
	}
	batch = slices.DeleteFunc(batch, func(p *proposal) bool {
		if p.lead == lead {
			return false
		}
		p.answer(nil, errTryLater(r.id, "the leadership under which this command came is over"))
		return true
	})
	if f.proposals = batch; len(batch) == 0 {
		return f
	}
	f.room = r.dispatcher.reserve(r.id)
	entry := &commandv1.Entry{TimeMs: r.now().UnixMilli(), Offers: offersOf(f.room)}
	for _, p := range batch {
		entry.Commands = append(entry.Commands, p.cmd)
	}
	b, err := fsm.EncodeEntry(entry)
	if err != nil {
		for _, p := range batch {
			p.answer(nil, errTryLater(r.id, "encoding the entry: "+err.Error()))
		}
		f.proposals = nil
		r.dispatcher.unreserve(f.room)
		return f
	}
	f.future = r.raft.Apply(b, enqueueTimeout)
	return f
}

// resolveLoop answers the callers of entries in the order of the log and carries out the effects.
func (r *Replica) resolveLoop() {
	defer close(r.resolved)
	for f := range r.flights {
		r.resolve(f)
		<-r.slots
	}
}

func (r *Replica) resolve(f *flight) {
	if f.future == nil {
		for _, p := range f.proposals {
			p.answer(nil, r.notServing())
		}
		return
	}
	err := waitFuture(f.future, r.killed, r.halting)
	if err != nil {
		r.dispatcher.unreserve(f.room)
		known := raftError(r.id, r.leaderHint(), err)
		if halted := r.halted(); halted != nil {
			known = errUnknownOutcome(r.id, halted.Error())
		}
		for _, p := range f.proposals {
			p.answer(nil, known)
		}
		return
	}
	switch res := f.future.Response().(type) {
	case *machine.Result:
		r.metrics.CommitSeconds.Observe(r.clock.Now().Sub(f.started).Seconds())
		r.metrics.Entries.Inc()
		r.effects(&res.Effects, f.room)
		for i, p := range f.proposals {
			r.metrics.applied(p.cmd, res.Replies[i])
			p.answer(res.Replies[i], nil)
		}
	case error:
		r.dispatcher.unreserve(f.room)
		for _, p := range f.proposals {
			p.answer(nil, errUnknownOutcome(r.id, res.Error()))
		}
	default:
		// The state had this index already, which cannot be for an entry of our own.
		r.dispatcher.unreserve(f.room)
		for _, p := range f.proposals {
			p.answer(nil, errUnknownOutcome(r.id, "the entry was applied before"))
		}
	}
}

var errAbandoned = errors.New("the node was stopped before the log answered")

// waitFuture waits for a future that may never answer (a shutdown forgets batches on their way to the
// machine), until Raft is down or the caller's own channel closes.
func waitFuture(f raft.Future, killed, given <-chan struct{}) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-killed:
	case <-given:
	}
	select {
	case err := <-done:
		return err
	default:
		return errAbandoned
	}
}
