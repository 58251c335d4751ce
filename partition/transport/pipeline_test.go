package transport

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestPipelineWithoutReader: a sender without a reader of its answers sends all messages until its next check
// for a stop, and Close ends everything.
func TestPipelineWithoutReader(t *testing.T) {
	a, b := listen(t, Options{ServerID: "a"}), listen(t, Options{ServerID: "b"})
	ta, tb := NewRaftTransport(a.Raft(1), RaftOptions{}), NewRaftTransport(b.Raft(1), RaftOptions{})
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case rpc := <-tb.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Term: 9}, nil)
			case <-stop:
				return
			}
		}
	}()
	p, err := ta.AppendEntriesPipeline("b", raft.ServerAddress(b.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	const messages = 8
	sent := make(chan error, messages)
	go func() {
		for range messages {
			_, err := p.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: ta.header(), Term: 8}, &raft.AppendEntriesResponse{})
			sent <- err
		}
	}()
	for i := range messages {
		select {
		case err := <-sent:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(testTimeout):
			t.Fatalf("message %d does not get through", i)
		}
	}
	for i := range messages {
		select {
		case f := <-p.Consumer():
			if f.Response().Term != 9 {
				t.Errorf("answer %d: %+v", i, f.Response())
			}
		case <-time.After(testTimeout):
			t.Fatalf("answer %d does not come", i)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := ta.Close(); err != nil {
		t.Error(err)
	}
	if err := tb.Close(); err != nil {
		t.Error(err)
	}
}
