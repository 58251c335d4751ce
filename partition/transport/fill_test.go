package transport

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// messages are the AppendEntries that a member has received.
type messages struct {
	mu sync.Mutex
	// largest is the data of the largest one with several entries, in bytes; entries is the most entries in one.
	largest, entries int
}

func (m *messages) note(req *raft.AppendEntriesRequest) {
	bytes := 0
	for _, l := range req.Entries {
		bytes += len(l.Data)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(req.Entries) > 1 {
		m.largest = max(m.largest, bytes)
	}
	m.entries = max(m.entries, len(req.Entries))
}

func (m *messages) figures() (largest, entries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.largest, m.entries
}

// inspected is a transport that notes what it receives.
type inspected struct {
	*RaftTransport
	seen *messages
	once sync.Once
	rpcs chan raft.RPC
}

func (i *inspected) Consumer() <-chan raft.RPC {
	i.once.Do(func() {
		i.rpcs = make(chan raft.RPC)
		go func() {
			for {
				select {
				case rpc := <-i.RaftTransport.Consumer():
					if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
						i.seen.note(req)
					}
					select {
					case i.rpcs <- rpc:
					case <-i.closed:
						return
					}
				case <-i.closed:
					return
				}
			}
		}()
	})
	return i.rpcs
}

func padded(what string, bytes int) string {
	return what + strings.Repeat(".", max(bytes-len(what), 0))
}

// A follower that was away gets the entries it lacks in messages of bounded size: one entry above the bound by itself,
// many small ones together. Every member applies the same.
func TestAppendEntriesByBytes(t *testing.T) {
	t.Parallel() // it waits most of the time
	nodes := threeNodes(t, time.Second)
	apply(t, nodes, 0, "begin")
	wantSeen(t, nodes, 0, 1)
	away := nodes[0]
	if leader(t, nodes, 0) == away {
		away = nodes[1]
	}
	away.die()
	var rest []*member
	for _, n := range nodes {
		if n != away {
			rest = append(rest, n)
		}
	}
	count := 1
	propose := func(n, bytes int) {
		l := leader(t, rest, 0).rafts[0]
		unknown := map[string]raft.ApplyFuture{}
		for range n {
			what := padded(fmt.Sprint("entry ", count, " "), bytes)
			unknown[what] = l.Apply([]byte(what), testTimeout)
			count++
		}
		for what, f := range unknown {
			if f.Error() != nil { // the leadership has ended meanwhile
				apply(t, rest, 0, what)
			}
		}
	}
	propose(200, 300)
	propose(4, 4<<20)
	propose(40, 100<<10)
	propose(3, 4<<20)
	away.start(false)
	wantSeen(t, nodes, 0, count)
	for _, n := range nodes {
		if largest, _ := n.messages.figures(); largest > maxAppendBytes {
			t.Errorf("%s got several entries of %d bytes in one message, the bound is %d", n.id, largest, maxAppendBytes)
		}
		if n.machines[0].all() != away.machines[0].all() {
			t.Errorf("%s has applied other entries than %s", n.id, away.id)
		}
	}
	if _, entries := away.messages.figures(); entries < 50 {
		t.Errorf("%s got %d entries in a message at most: small ones should travel together", away.id, entries)
	}
	for _, n := range nodes {
		n.stop()
	}
}

// A follower whose log ends with entries that were never committed gets those of the new leader instead, also when the
// messages that bring them are cut.
func TestAppendEntriesByBytesDivergent(t *testing.T) {
	t.Parallel() // it waits most of the time
	nodes := threeNodes(t, 600*time.Millisecond)
	apply(t, nodes, 0, "begin")
	wantSeen(t, nodes, 0, 1)
	old := leader(t, nodes, 0)
	var rest []*member
	for _, n := range nodes {
		if n != old {
			n.die()
			rest = append(rest, n)
		}
	}
	const each, size = 25, 200 << 10
	var lost []raft.ApplyFuture
	for i := range each {
		lost = append(lost, old.rafts[0].Apply([]byte(padded(fmt.Sprint("lost ", i, " "), size)), testTimeout))
	}
	eventually(t, "the former leader has them in its log", func() (string, bool) {
		last := old.rafts[0].LastIndex()
		return fmt.Sprint(last), last >= each
	})
	old.die()
	for _, f := range lost {
		if f.Error() == nil {
			t.Fatal("an entry was committed by one of three")
		}
	}
	for _, n := range rest {
		n.start(false)
	}
	for i := range each {
		apply(t, rest, 0, padded(fmt.Sprint("kept ", i, " "), size))
	}
	old.start(false)
	wantSeen(t, nodes, 0, 1+each)
	for _, n := range nodes {
		if all := n.machines[0].all(); all != rest[0].machines[0].all() || strings.Contains(all, "lost") {
			t.Errorf("%s has applied other entries than %s, or a lost one", n.id, rest[0].id)
		}
		n.stop()
	}
}

// A message shows no commit index beyond its own end, and begins where the one before ended.
func TestFill(t *testing.T) {
	entry := func(index, term uint64, bytes int) *raft.Log {
		return &raft.Log{Index: index, Term: term, Data: make([]byte, bytes)}
	}
	var loaded int
	tr := &RaftTransport{load: func(l *raft.Log) (*raft.Log, error) {
		loaded += len(l.Data)
		return l, nil
	}}
	args := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 10, PrevLogTerm: 3, LeaderCommitIndex: 13, Entries: []*raft.Log{
		entry(11, 4, maxAppendBytes-10), entry(12, 5, 10), entry(13, 6, 10), entry(14, 7, 3*maxAppendBytes), entry(15, 7, 1)}}
	for _, c := range []struct {
		from                      int
		prev, prevTerm, n, commit uint64
	}{{0, 10, 3, 2, 12}, {2, 12, 5, 1, 13}, {3, 13, 6, 1, 13}, {4, 14, 7, 1, 13}, {5, 15, 7, 0, 13}} {
		loaded = 0
		m, n, err := tr.fill(args, c.from)
		if err != nil || m.PrevLogEntry != c.prev || m.PrevLogTerm != c.prevTerm || uint64(n) != c.n || m.LeaderCommitIndex != c.commit || m.Term != 7 {
			t.Errorf("from %d: %d entries after %d/%d, commit %d, %v", c.from, n, m.PrevLogEntry, m.PrevLogTerm, m.LeaderCommitIndex, err)
		}
		if loaded > maxAppendBytes && n > 1 {
			t.Errorf("from %d: %d bytes were read for %d entries", c.from, loaded, n)
		}
	}
	empty := &raft.AppendEntriesRequest{PrevLogEntry: 5, LeaderCommitIndex: 9}
	if m, n, err := tr.fill(empty, 0); n != 0 || err != nil || m.LeaderCommitIndex != 5 {
		t.Errorf("without entries: %d, commit %d, %v", n, m.LeaderCommitIndex, err)
	}
	tr.load = func(*raft.Log) (*raft.Log, error) { return nil, raft.ErrLogNotFound }
	if _, _, err := tr.fill(args, 0); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a log that was cut: %v", err)
	}
}
