package transport

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestLateAnswers: an answer from a later term reaches the library if this server leads in the request's term: it has a
// successor. If not, the answer is late, and the library takes it for a failure: it would step down in the term in which it leads.
func TestLateAnswers(t *testing.T) {
	t.Run("it leads", func(t *testing.T) {
		testLateAnswers(t, func(term uint64) bool { return term == lateNow }, false)
	})
	t.Run("it follows", func(t *testing.T) { testLateAnswers(t, func(uint64) bool { return false }, true) })
	t.Run("it has led", func(t *testing.T) { testLateAnswers(t, nil, false) })
}

// The terms of testLateAnswers.
const lateFormer, lateNow = 8, 9

func testLateAnswers(t *testing.T, leading func(term uint64) bool, follows bool) {
	a, b := listen(t, Options{ServerID: "a"}), listen(t, Options{ServerID: "b"})
	ta := NewRaftTransport(a.Raft(1), RaftOptions{Leading: leading})
	tb := NewRaftTransport(b.Raft(1), RaftOptions{})
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case rpc := <-tb.Consumer():
				switch r := rpc.Command.(type) {
				case *raft.AppendEntriesRequest:
					rpc.Respond(&raft.AppendEntriesResponse{Term: r.Term + r.PrevLogTerm}, nil)
				case *raft.InstallSnapshotRequest:
					if _, err := io.Copy(io.Discard, rpc.Reader); err != nil {
						t.Error(err)
					}
					rpc.Respond(&raft.InstallSnapshotResponse{Term: r.Term + r.LastLogTerm}, nil)
				}
			case <-stop:
				return
			}
		}
	}()
	to := raft.ServerAddress(b.Addr().String())
	pipe, err := ta.AppendEntriesPipeline("b", to)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		term, more uint64 // the answer's term is so much later
		late       bool
	}{{lateFormer, 0, false}, {lateNow, 0, false}, {lateNow, 1, follows}, {lateFormer, 1, true}, {lateFormer, 2, true}} {
		var resp raft.AppendEntriesResponse
		err := ta.AppendEntries("b", to, &raft.AppendEntriesRequest{RPCHeader: ta.header(), Term: c.term, PrevLogTerm: c.more}, &resp)
		if errors.Is(err, raft.ErrLeadershipLost) != c.late || !c.late && err != nil {
			t.Errorf("entries, %+v: %v", c, err)
		}
		var installed raft.InstallSnapshotResponse
		err = ta.InstallSnapshot("b", to, &raft.InstallSnapshotRequest{RPCHeader: ta.header(), Term: c.term, LastLogTerm: c.more, Size: 3}, &installed, strings.NewReader("abc"))
		if errors.Is(err, raft.ErrLeadershipLost) != c.late || !c.late && err != nil {
			t.Errorf("a snapshot, %+v: %v", c, err)
		}
		if _, err := pipe.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: ta.header(), Term: c.term, PrevLogTerm: c.more}, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		select {
		case f := <-pipe.Consumer():
			want := c.term + c.more
			if c.late {
				want = c.term
			}
			if got := f.Response(); got.Term != want || got.Success {
				t.Errorf("pipelined entries, %+v: %+v", c, got)
			}
		case <-time.After(testTimeout):
			t.Fatal("no answer came")
		}
	}
	for _, end := range []func() error{pipe.Close, ta.Close, tb.Close} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
}
