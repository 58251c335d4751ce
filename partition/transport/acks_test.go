package transport

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestAcksCountRequests: what counts is when a request left, not when its answer came. Both ways of sending, and
// an answer from a later term, which acknowledges nothing.
func TestAcksCountRequests(t *testing.T) {
	a, b := listen(t, Options{ServerID: "a"}), listen(t, Options{ServerID: "b"})
	ta, tb := NewRaftTransport(a.Raft(1), RaftOptions{}), NewRaftTransport(b.Raft(1), RaftOptions{})
	defer func() {
		if err := ta.Close(); err != nil {
			t.Error(err)
		}
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	}()
	const term = 8
	acks, to := ta.Acks(), raft.ServerAddress(b.Addr().String())
	request := func() *raft.AppendEntriesRequest {
		return &raft.AppendEntriesRequest{RPCHeader: ta.header(), Term: term}
	}
	pipe, err := ta.AppendEntriesPipeline("b", to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pipe.Close(); err != nil {
			t.Error(err)
		}
	}()
	// ask sends a request; the answer's way back ends when the function that it returns was called.
	ways := map[string]func(answerTerm uint64) (arrive func()){}
	deliver := func(answerTerm uint64) func() {
		select {
		case rpc := <-tb.Consumer():
			return func() { rpc.Respond(&raft.AppendEntriesResponse{Term: answerTerm, Success: true}, nil) }
		case <-time.After(testTimeout):
			t.Fatal("no request came")
			return nil
		}
	}
	ways["one by one"] = func(answerTerm uint64) func() {
		done := make(chan error, 1)
		go func() { done <- ta.AppendEntries("b", to, request(), &raft.AppendEntriesResponse{}) }()
		answer := deliver(answerTerm)
		return func() {
			answer()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	ways["pipelined"] = func(answerTerm uint64) func() {
		if _, err := pipe.AppendEntries(request(), &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		answer := deliver(answerTerm)
		return func() {
			answer()
			select {
			case <-pipe.Consumer():
			case <-time.After(testTimeout):
				t.Fatal("no answer came")
			}
		}
	}
	for name, ask := range ways {
		arrive := ask(term)
		mark := acks.Mark()
		changed := acks.Changed()
		arrive()
		if acks.Since("b", term, mark) {
			t.Errorf("%s: an answer to a request from before the mark counts as one since", name)
		}
		if !acks.Since("b", term, mark-1) {
			t.Errorf("%s: an answer to a request after a mark does not count", name)
		}
		select {
		case <-changed:
		default:
			t.Errorf("%s: who waits for an answer is not woken", name)
		}
		if mark = acks.Mark(); acks.Since("b", term, mark) {
			t.Errorf("%s: nothing was asked, and it counts", name)
		}
		ask(term + 1)()
		if acks.Since("b", term, mark) || acks.Since("b", term+1, mark) {
			t.Errorf("%s: an answer from a later term acknowledges a leader", name)
		}
		ask(term)()
		if !acks.Since("b", term, mark) || acks.Since("c", term, mark) || acks.Since("b", term-1, mark) {
			t.Errorf("%s: the next answer does not count for its server and term alone", name)
		}
	}
}
