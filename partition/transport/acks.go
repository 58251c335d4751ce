package transport

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Acks records which of this server's requests to append the other servers have answered in the request's own
// term. Such a server was in no later term when it answered, and it answered after the request left. So when
// a majority of the voters has answered requests numbered above a Mark, no successor had been elected when
// the leader took the mark. An answer that *arrives* after the mark proves nothing: it may have waited in the
// network since before an election.
//
// It is safe for use by several goroutines and never blocks. A crash loses all of it; a server that starts
// leads no group.
type Acks struct {
	mu      sync.Mutex
	sent    uint64
	term    uint64 // the latest in which this server has sent one
	newest  map[raft.ServerID]ack
	changed chan struct{} // nil while no goroutine waits for it
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

// begin numbers a request of a term that has not left yet.
func (a *Acks) begin(term uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent++
	a.term = max(a.term, term)
	return a.sent
}

// over reports whether this server has sent a request in a later term.
func (a *Acks) over(term uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.term > term
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
