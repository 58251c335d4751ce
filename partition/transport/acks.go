package transport

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Acks remembers which of this server's requests to append the other servers have answered in the request's
// own term. A server that does so was in no later term when the answer was made, and the answer was made after
// the request left: so a leader that finds a majority of the voters to have answered requests numbered above a
// Mark knows that no successor had been elected when the mark was taken. That an answer *arrives* after the mark
// says nothing: it may have waited in the network since before an election.
//
// It is safe for use by several goroutines and never blocks. A crash loses all of it; a server that starts leads
// nothing.
type Acks struct {
	mu      sync.Mutex
	sent    uint64
	newest  map[raft.ServerID]ack
	changed chan struct{} // nil while nobody waits for it
}

// ack is the last request that a server is known to have answered.
type ack struct{ term, number uint64 }

func newAcks() *Acks {
	return &Acks{newest: map[raft.ServerID]ack{}}
}

// Mark is the number of the newest request; every request that leaves after the call has a greater one.
func (a *Acks) Mark() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent
}

// Since reports whether a server has answered a request of a term that is numbered above a mark.
func (a *Acks) Since(server raft.ServerID, term, mark uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.newest[server]
	return got.term == term && got.number > mark
}

// Changed is closed at the next answer that Since may report.
func (a *Acks) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// begin numbers a request that has not left yet.
func (a *Acks) begin() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent++
	return a.sent
}

// answered takes in a server's answer to a request. One from a later term acknowledges nothing: the server knows
// of another leader, or of a candidate.
func (a *Acks) answered(server raft.ServerID, number, term, answerTerm uint64) {
	if answerTerm != term {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if was := a.newest[server]; was.term > term || was.term == term && was.number >= number {
		return
	}
	a.newest[server] = ack{term, number}
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}
