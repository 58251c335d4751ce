package transport

import (
	"sync"

	"github.com/hashicorp/raft"
)

// pipeline takes answers off the library's pipeline also when nobody wants them any more. The library stops
// reading when a follower refuses (or knows a newer term), while its sender may just hand over the next
// message: then the sender waits for the decoder, the decoder for a reader, and neither the pipeline's end
// nor a shutdown is ever noticed. The answers wait here, so the sender always gets through and looks up.
type pipeline struct {
	raft.AppendPipeline
	out  chan raft.AppendFuture
	done chan struct{}
	once sync.Once
}

var _ raft.AppendPipeline = (*pipeline)(nil)

// AppendEntriesPipeline implements raft.Transport.
func (t *RaftTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, out: make(chan raft.AppendFuture), done: make(chan struct{})}
	go p.carry()
	return p, nil
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
			waiting = append(waiting, f)
		case out <- first:
			waiting = waiting[1:]
		case <-p.done:
			return
		}
	}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
