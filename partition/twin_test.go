package partition

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"perdure/fsm"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/partition/group"
)

// A twin is a second machine per partition, on a tree in memory, that applies a node's log entry by entry as
// it grows. It keeps the state and its checksum at every index, so a test can compare a node after a power
// loss at whatever index it came back with.
type twin struct {
	parts []*twinPart
}

type twinPart struct {
	cfg machine.Config

	// known is the length of log, for those who do not wait for mu.
	known atomic.Uint64

	mu sync.Mutex
	// log is the node's log from index 1 on, every type of entry. It only grows, but for turnBack.
	log     []raft.Log
	m       *machine.Machine
	state   *state.MemReader
	corners []corner
}

// corner is a state that was kept, from which later ones are made again.
type corner struct {
	index uint64
	state *state.MemReader
}

const cornerEvery = 256

func newTwin(partitions uint32) (*twin, error) {
	w := &twin{}
	for p := range partitions {
		part := &twinPart{cfg: machine.Config{Partition: p, Partitions: partitions, CheckInvariants: true}}
		if err := part.turnBack(0); err != nil {
			return nil, err
		}
		w.parts = append(w.parts, part)
	}
	return w, nil
}

// turnBack forgets everything after an index. The caller holds mu, or is alone.
func (w *twinPart) turnBack(index uint64) error {
	if index < uint64(len(w.log)) {
		w.log = w.log[:index]
		w.known.Store(index)
	}
	for len(w.corners) > 0 && w.corners[len(w.corners)-1].index > index {
		w.corners = w.corners[:len(w.corners)-1]
	}
	from := corner{0, state.NewMemReader()}
	if len(w.corners) > 0 {
		from = w.corners[len(w.corners)-1]
	}
	w.state = from.state.Clone()
	m, err := machine.New(w.cfg, w.state)
	if err != nil {
		return err
	}
	w.m = m
	return replay(m, w.state, w.log[from.index:index])
}

// replay applies entries to a machine over a tree.
func replay(m *machine.Machine, state *state.MemReader, logs []raft.Log) error {
	for i := range logs {
		l := &logs[i]
		if l.Type != raft.LogCommand {
			continue
		}
		e, err := fsm.DecodeEntry(l.Data)
		if err != nil {
			return err
		}
		if _, err := m.Apply(l.Index, e); err != nil {
			return err
		}
		state.Apply(m.Writes())
		m.Committed()
	}
	return nil
}

// follow takes in what a group's log has got since. It fails when the log was cut before it was read.
func (w *twinPart) follow(logs raft.LogStore) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	for uint64(len(w.log)) < last {
		var l raft.Log
		if err := logs.GetLog(uint64(len(w.log))+1, &l); err != nil {
			return fmt.Errorf("entry %d of %d: %w", len(w.log)+1, last, err)
		}
		w.log = append(w.log, l)
		w.known.Store(l.Index)
		if err := replay(w.m, w.state, w.log[len(w.log)-1:]); err != nil {
			return err
		}
		if n := uint64(len(w.log)); n%cornerEvery == 0 {
			w.corners = append(w.corners, corner{n, w.state.Clone()})
		}
	}
	return nil
}

// verdict is what a comparison found.
type verdict struct {
	// shared is how far the node's log is the one the twin followed; replayed, how many entries the
	// comparison applied.
	shared   uint64
	replayed int
}

// compare checks a replica against the twin, while its node serves: its log must continue the one the twin
// knows, its checksum must be that of a replay, and with whole its state too, key by key.
func (w *twinPart) compare(r *group.Replica, logs raft.LogStore, whole bool) (v verdict, err error) {
	st, err := r.Store().Status()
	if err != nil {
		return v, err
	}
	var now map[string]string
	if whole {
		// The state may move on between two looks; the one that is compared is one state.
		if st, now, err = stateOf(r.Store()); err != nil {
			return v, err
		}
	}
	first, err := logs.FirstIndex()
	if err != nil {
		return v, err
	}
	last, err := logs.LastIndex()
	if err != nil {
		return v, err
	}
	w.mu.Lock()
	known, corners := w.log, w.corners
	w.mu.Unlock()
	own := []raft.Log{}
	v.shared = first - 1
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := logs.GetLog(i, &l); err != nil {
			if i <= first+1 || err == raft.ErrLogNotFound {
				continue // cut meanwhile
			}
			return v, err
		}
		if len(own) == 0 && i <= uint64(len(known)) && sameEntry(&known[i-1], &l) {
			v.shared = i
			continue
		}
		own = append(own, l)
	}
	if v.shared > uint64(len(known)) || (len(own) > 0 && own[0].Index != v.shared+1) {
		return v, fmt.Errorf("the log is %d..%d, of which up to %d is known (%d entries)", first, last, v.shared, len(known))
	}
	from := corner{0, state.NewMemReader()}
	for _, c := range corners {
		if c.index <= min(v.shared, st.Applied) {
			from = c
		}
	}
	w.mu.Lock()
	state := from.state.Clone() // which writes to the original
	w.mu.Unlock()
	m, err := machine.New(w.cfg, state)
	if err != nil {
		return v, err
	}
	upTo := min(v.shared, st.Applied)
	if err := replay(m, state, known[from.index:upTo]); err != nil {
		return v, err
	}
	v.replayed = int(upTo - from.index)
	for i := range own {
		if own[i].Index <= st.Applied {
			if err := replay(m, state, own[i:i+1]); err != nil {
				return v, err
			}
			v.replayed++
		}
	}
	if m.Applied() != st.Applied || m.Checksum() != st.Checksum {
		return v, fmt.Errorf("the state is at index %d with checksum %016x, a replay at %d with %016x", st.Applied, st.Checksum, m.Applied(), m.Checksum())
	}
	if whole {
		return v, sameState(contentOf(state), now)
	}
	return v, nil
}

func sameEntry(a, b *raft.Log) bool {
	return a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data)
}

// stateOf reads a whole state, with its figures, but for what only the store itself keeps there.
func stateOf(s *fsm.Store) (st fsm.Status, all map[string]string, err error) {
	err = s.View(func(r state.Reader) error {
		all = contentOf(r)
		return nil
	})
	if err != nil {
		return st, nil, err
	}
	st, err = statusOf(all)
	return st, all, err
}

func statusOf(all map[string]string) (st fsm.Status, err error) {
	number := func(name string) (n uint64) {
		for _, b := range []byte(all[string(keys.MetaKey(name))]) {
			n = n<<8 | uint64(b)
		}
		return n
	}
	st.Applied, st.Checksum, st.ClockMS = number("applied"), number("checksum"), int64(number("clock"))
	return st, nil
}

func contentOf(r state.Reader) map[string]string {
	all := map[string]string{}
	_ = r.Scan(nil, nil, func(key, value []byte) bool {
		switch string(key) {
		case string(keys.MetaKey("stamp")), string(keys.MetaKey("covered")), string(keys.MetaKey("received")):
		default:
			all[string(key)] = string(value)
		}
		return true
	})
	return all
}

func sameState(want, have map[string]string) error {
	for k, v := range want {
		if h, ok := have[k]; !ok || h != v {
			return fmt.Errorf("key %q is %q, a replay has %q", k, h, v)
		}
	}
	for k, v := range have {
		if _, ok := want[k]; !ok {
			return fmt.Errorf("key %q is %q, a replay has none", k, v)
		}
	}
	return nil
}

// A follower keeps a twin up with a node, and holds a load back that would run away from it.
type follower struct {
	w    *twin
	n    *Node
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	err error
}

// maxLag is how many entries a load may be ahead; the log must keep more behind each marker.
const maxLag = 48

func follow(w *twin, n *Node) *follower {
	f := &follower{w: w, n: n, done: make(chan struct{})}
	f.ctx, f.stop = context.WithCancel(context.Background())
	go f.run()
	return f
}

func (f *follower) run() {
	defer close(f.done)
	defer f.stop() // no caller waits for one that has failed
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		for p, part := range f.w.parts {
			if err := part.follow(f.n.raftlog.Group(uint32(p))); err != nil {
				f.mu.Lock()
				f.err = fmt.Errorf("partition %d: %w", p, err)
				f.mu.Unlock()
				return
			}
		}
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
	}
}

// gate holds a caller back while the node is too far ahead.
func (f *follower) gate() {
	for f.far() {
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (f *follower) far() bool {
	for p, part := range f.w.parts {
		if f.n.router.Replicas()[p].Raft().LastIndex() > part.known.Load()+maxLag {
			return true
		}
	}
	return false
}

// end stops following.
func (f *follower) end() error {
	f.stop()
	<-f.done
	return f.failed()
}

func (f *follower) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
