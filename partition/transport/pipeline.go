package transport

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// pipeline takes answers off the library's pipeline also when nobody wants them any more. The library stops
// reading when a follower refuses (or knows a newer term), while its sender may just hand over the next
// message: then the sender waits for the decoder, the decoder for a reader, and neither the pipeline's end
// nor a shutdown is ever noticed. The answers wait here, so the sender always gets through and looks up.
type pipeline struct {
	raft.AppendPipeline
	server raft.ServerID
	acks   *Acks
	out    chan raft.AppendFuture
	done   chan struct{}
	once   sync.Once

	mu sync.Mutex
	// sent are the requests without an answer, in the order in which they left; the library bounds them.
	sent []numbered
}

var _ raft.AppendPipeline = (*pipeline)(nil)

// AppendEntriesPipeline implements raft.Transport.
func (t *RaftTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, server: id, acks: t.acks, out: make(chan raft.AppendFuture), done: make(chan struct{})}
	go p.carry()
	return p, nil
}

// numbered is a request on its way, and its number among this server's.
type numbered struct {
	request *raft.AppendEntriesRequest
	number  uint64
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	number := p.acks.begin()
	p.mu.Lock()
	p.sent = append(p.sent, numbered{args, number})
	p.mu.Unlock()
	return p.AppendPipeline.AppendEntries(args, resp)
}

// carry hands answers on, in order, until Close. What waits is bounded by what the sender sends between two
// looks at whether it shall stop.
func (p *pipeline) carry() {
	var waiting []raft.AppendFuture
	in := p.AppendPipeline.Consumer()
	for {
		var out chan raft.AppendFuture
		var first raft.AppendFuture
		if len(waiting) > 0 {
			out, first = p.out, waiting[0]
		}
		select {
		case f := <-in:
			p.acknowledged(f)
			waiting = append(waiting, f)
		case out <- first:
			waiting = waiting[1:]
		case <-p.done:
			return
		}
	}
}

// acknowledged notes the answer of a future that the library has completed.
func (p *pipeline) acknowledged(f raft.AppendFuture) {
	p.mu.Lock()
	at := slices.IndexFunc(p.sent, func(n numbered) bool { return n.request == f.Request() })
	if at < 0 {
		p.mu.Unlock()
		return
	}
	number := p.sent[at].number
	p.sent = slices.Delete(p.sent, 0, at+1)
	p.mu.Unlock()
	if f.Error() == nil {
		p.acks.answered(p.server, number, f.Request().Term, f.Response().Term)
	}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
