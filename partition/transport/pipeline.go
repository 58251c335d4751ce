package transport

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// pipeline reads the answers of the library's pipeline even when they are no longer needed. The library stops
// reading when a follower refuses (or knows a newer term), while its sender may just pass on the next
// message. Then the sender waits for the decoder, the decoder for a reader, and neither notices the
// pipeline's end or a shutdown. The answers wait here, so the sender never blocks for long and notices both.
//
// It also splits what the library sends into messages of maxAppendBytes. Each is answered by itself, so the library
// learns of the follower's progress after each of them.
type pipeline struct {
	raft.AppendPipeline
	t      *RaftTransport
	server raft.ServerID
	out    chan raft.AppendFuture
	done   chan struct{}
	once   sync.Once

	mu sync.Mutex
	// sent are the messages without an answer, in the order in which they left; the library bounds them.
	sent []message
	// refused is set by the first answer that is no success: the library reads no further one.
	refused bool
}

var _ raft.AppendPipeline = (*pipeline)(nil)

// AppendEntriesPipeline implements raft.Transport.
func (t *RaftTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: inner, t: t, server: id, out: make(chan raft.AppendFuture), done: make(chan struct{})}
	go p.carry()
	return p, nil
}

// message is a request on its way, and its number among this server's.
type message struct {
	request *raft.AppendEntriesRequest
	// known is the request as the library made it, or a part of it: without the data that was read to send it.
	known  *raft.AppendEntriesRequest
	number uint64
}

// AppendEntries implements raft.AppendPipeline. It sends the entries of args in as many messages as they need and reads
// the data of one message at a time. It returns the future of the last; the library reads the consumer's only.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	for from := 0; ; {
		request, n, err := p.t.fill(args, from)
		if err != nil {
			return nil, err
		}
		known := *request
		known.Entries = args.Entries[from : from+n]
		first, last := from == 0, from+n == len(args.Entries)
		from += n
		answer := resp
		if !last {
			answer = new(raft.AppendEntriesResponse)
		}
		m := message{request, &known, p.t.acks.begin(args.Term)}
		p.mu.Lock()
		if p.refused && !first {
			p.mu.Unlock()
			return nil, raft.ErrPipelineShutdown
		}
		p.sent = append(p.sent, m)
		p.mu.Unlock()
		f, err := p.AppendPipeline.AppendEntries(request, answer)
		request.Entries = nil // it was written; its future is referenced until the answer comes
		if err != nil {
			return nil, err
		}
		if last {
			return &partFuture{f, &known, false}, nil
		}
	}
}

// partFuture is the future of a message, with the request as the library knows it.
type partFuture struct {
	raft.AppendFuture
	known *raft.AppendEntriesRequest
	// late: the answer says that the term is over, as this server knows.
	late bool
}

// Request implements raft.AppendFuture.
func (f *partFuture) Request() *raft.AppendEntriesRequest { return f.known }

// Response implements raft.AppendFuture. A late answer is a refusal in the request's own term: it ends the pipeline, and the
// library takes nothing else from it.
func (f *partFuture) Response() *raft.AppendEntriesResponse {
	resp := f.AppendFuture.Response()
	if !f.late {
		return resp
	}
	return &raft.AppendEntriesResponse{RPCHeader: resp.RPCHeader, Term: f.known.Term, LastLog: resp.LastLog}
}

// carry passes answers on, in order, until Close. The messages that the sender sends between two checks for a
// stop bound the number of waiting answers.
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
			waiting = append(waiting, p.acknowledged(f))
		case out <- first:
			waiting = waiting[1:]
		case <-p.done:
			return
		}
	}
}

// acknowledged notes the answer of a future that the library's pipeline has completed, and returns the future for the
// library's decoder.
func (p *pipeline) acknowledged(f raft.AppendFuture) raft.AppendFuture {
	p.mu.Lock()
	at := slices.IndexFunc(p.sent, func(m message) bool { return m.request == f.Request() })
	if at < 0 {
		p.mu.Unlock()
		return f
	}
	m := p.sent[at]
	p.sent = slices.Delete(p.sent, 0, at+1)
	p.refused = p.refused || !f.Response().Success
	p.mu.Unlock()
	if f.Error() != nil {
		return &partFuture{f, m.known, false}
	}
	p.t.acks.answered(p.server, m.number, m.known.Term, f.Response().Term)
	return &partFuture{f, m.known, p.t.late(m.known.Term, f.Response().Term) != nil}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.AppendPipeline.Close()
}
