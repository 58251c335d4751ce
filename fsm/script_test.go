package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

const ns = "default"

// A script is a log, and what the state must be after each of its entries, as a machine over a tree in
// memory has made it.
type script struct {
	logs []*raft.Log
	// states, checksums and results are by position in logs.
	states    []*state.MemReader
	checksums []uint64
	results   []*machine.Result
}

var config = machine.Config{Partition: 0, Partitions: 1, CheckInvariants: true}

// newScript makes a log of n entries, with everything that users and workers do, and with gaps in the
// numbers, as barriers and elections leave them.
func newScript(t testing.TB, seed uint64, n int) *script {
	t.Helper()
	return newSparseScript(t, seed, n, func(rng *rand.Rand) uint64 { return 1 + uint64(count(rng.IntN(10) == 0)) })
}

// newSparseScript is newScript with a say in how far an entry's number is from the one before.
func newSparseScript(t testing.TB, seed uint64, n int, step func(*rand.Rand) uint64) *script {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &script{}
	state := state.NewMemReader()
	m, err := machine.New(config, state)
	if err != nil {
		t.Fatal(err)
	}
	var held []*perdurev1.TaskToken
	now, index := int64(1_000_000), uint64(0)
	for len(s.logs) < n {
		index += step(rng)
		if rng.IntN(20) == 0 { // an entry the machine never sees
			s.add(&raft.Log{Index: index, Term: 1, Type: raft.LogConfiguration}, state.Clone(), m.Checksum(), nil)
			continue
		}
		now += rng.Int64N(200)
		e := &commandv1.Entry{TimeMs: now}
		for range 1 + rng.IntN(4) {
			e.Commands = append(e.Commands, someCommand(rng, &held))
		}
		if rng.IntN(3) == 0 {
			e.Grants = []*commandv1.Grant{{Worker: "w", Namespace: ns, Functions: []string{"f", "g"}, Credit: 3, LeaseMs: 5000}}
		}
		data, err := EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		res, err := m.Apply(index, e)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range res.Effects.Assigned {
			held = append(held, a.Token)
		}
		state.Apply(m.Writes())
		m.Committed()
		s.add(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}, state.Clone(), m.Checksum(), res)
	}
	return s
}

func (s *script) add(l *raft.Log, state *state.MemReader, sum uint64, res *machine.Result) {
	s.logs, s.states = append(s.logs, l), append(s.states, state)
	s.checksums, s.results = append(s.checksums, sum), append(s.results, res)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

func someCommand(rng *rand.Rand, held *[]*perdurev1.TaskToken) *commandv1.Command {
	id := fmt.Sprintf("execution-%d", rng.IntN(60))
	promise := fmt.Sprintf("promise-%d", rng.IntN(40))
	filler := bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(500))
	request := &perdurev1.RequestID{Id: fmt.Appendf(nil, "request %x", rng.Uint64())}
	switch rng.IntN(8) {
	case 0, 1:
		return &commandv1.Command{Namespace: ns, Id: id, Request: request, Kind: &commandv1.Command_Start{
			Start: &perdurev1.StartRequest{Id: id, Function: "f", Input: filler, AllowUnknownFunction: true, TimeoutMs: 30_000}}}
	case 2:
		return &commandv1.Command{Namespace: ns, Id: id, Request: request, Kind: &commandv1.Command_Signal{
			Signal: &perdurev1.SignalRequest{Id: id, Name: "go", Payload: filler}}}
	case 3:
		return &commandv1.Command{Namespace: ns, Id: promise, Kind: &commandv1.Command_CreatePromise{
			CreatePromise: &perdurev1.CreatePromiseRequest{Id: promise, TimeoutMs: 1 + rng.Int64N(3000), Param: filler}}}
	case 4:
		return &commandv1.Command{Namespace: ns, Id: promise, Kind: &commandv1.Command_SettlePromise{
			SettlePromise: &perdurev1.SettlePromiseRequest{Id: promise, State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED}}}
	case 5:
		return &commandv1.Command{Kind: &commandv1.Command_Tick{Tick: &commandv1.Tick{}}}
	case 6:
		return &commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_Cancel{
			Cancel: &perdurev1.CancelRequest{Id: id, Reason: "enough", GraceMs: 100}}}
	default:
		if len(*held) == 0 {
			return &commandv1.Command{Kind: &commandv1.Command_Assign{Assign: &commandv1.Assign{}}}
		}
		token := (*held)[0]
		*held = (*held)[1:]
		return &commandv1.Command{Namespace: ns, Id: token.Id, Request: request, Kind: &commandv1.Command_Commit{
			Commit: &perdurev1.Commit{Task: token, Events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCompleted{
				ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: filler}}}}}}}
	}
}

// last is the index of the last entry that the machine sees in the first n.
func (s *script) last(n int) uint64 {
	for n--; n >= 0; n-- {
		if s.logs[n].Type == raft.LogCommand {
			return s.logs[n].Index
		}
	}
	return 0
}

// position is how many entries of the log bring a state to an applied index.
func (s *script) position(applied uint64) (n int, ok bool) {
	if applied == 0 {
		return 0, true
	}
	for i, l := range s.logs {
		if l.Index == applied {
			return i + 1, true
		}
	}
	return 0, false
}

// agrees checks that a store is, whole, at some index of the script, and answers which.
func (s *script) agrees(store *Store) (Status, error) {
	st, err := store.Status()
	if err != nil {
		return st, err
	}
	n, ok := s.position(st.Applied)
	if !ok {
		return st, fmt.Errorf("applied index %d is not one of the log", st.Applied)
	}
	var have map[string]string
	if err := store.View(func(r state.Reader) error {
		have = contentOf(r)
		return nil
	}); err != nil {
		return st, err
	}
	want, sum := map[string]string{}, uint64(0)
	if n > 0 {
		want, sum = contentOf(s.states[n-1]), s.checksums[n-1]
	}
	if st.Checksum != sum {
		return st, fmt.Errorf("at index %d the checksum is %016x, a replay has %016x", st.Applied, st.Checksum, sum)
	}
	for k, v := range want {
		if h, ok := have[k]; !ok || h != v {
			return st, fmt.Errorf("at index %d key %q is %q, a replay has %q", st.Applied, k, h, v)
		}
	}
	if len(have) != len(want) {
		return st, fmt.Errorf("at index %d there are %d keys, a replay has %d", st.Applied, len(have), len(want))
	}
	return st, nil
}

// contentOf is a state but for what only the store itself keeps in it.
func contentOf(r state.Reader) map[string]string {
	out := map[string]string{}
	_ = r.Scan(nil, nil, func(key, value []byte) bool {
		switch string(key) {
		case string(keys.MetaKey(metaStamp)), string(keys.MetaKey(metaCovered)), string(keys.MetaKey(metaReceived)):
		default:
			out[string(key)] = string(value)
		}
		return true
	})
	return out
}

// watcher takes a store's OnFatal, and lets its flushes give up then, as a node does.
type watcher struct {
	once  sync.Once
	fatal chan struct{}
	mu    sync.Mutex
	errs  []error
}

func newWatcher() *watcher { return &watcher{fatal: make(chan struct{})} }

func (w *watcher) onFatal(err error) {
	w.mu.Lock()
	w.errs = append(w.errs, err)
	w.mu.Unlock()
	w.once.Do(func() { close(w.fatal) })
}

func (w *watcher) said() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]error(nil), w.errs...)
}

func (w *watcher) flush(db *pebble.DB) error {
	done, err := db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-w.fatal:
		return errors.New("given up")
	}
}

// await gives up as flush does.
func (w *watcher) await(open func() error) error {
	done := make(chan error, 1)
	go func() { done <- open() }()
	select {
	case err := <-done:
		return err
	case <-w.fatal:
		return errors.New("given up")
	}
}

// quiet is a logger that says nothing. Fatalf never returns, as Pebble expects.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) { select {} }

var stampOfTests = []byte("cluster/server/state-0000")

func (w *watcher) options(fs vfs.FS, create bool) Options {
	return Options{
		FS: fs, MemTableBytes: 32 << 10, Machine: config, Create: create, Stamp: stampOfTests,
		Logger: quiet{}, Flush: w.flush, Await: w.await, OnFatal: w.onFatal,
		pendingKeys: 64, // so that most scripts are stored in several batches
	}
}

// open opens a store in memory, and closes it when the test ends.
func open(t testing.TB, fs vfs.FS, dir string, create bool) *Store {
	t.Helper()
	w := newWatcher()
	s, err := Open(dir, w.options(fs, create))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if errs := w.said(); len(errs) > 0 {
			t.Errorf("the store halted: %v", errs)
		}
	})
	return s
}

// apply gives entries to a store, some at a time, and checks the answers.
func (s *script) apply(t testing.TB, store *Store, from, to, atOnce int) {
	t.Helper()
	for from < to {
		n := min(to, from+atOnce)
		for i, res := range store.ApplyBatch(s.logs[from:n]) {
			if err, failed := res.(error); failed {
				t.Fatalf("entry %d: %v", s.logs[from+i].Index, err)
			}
		}
		from = n
	}
}

// soon is how long a test waits for what must come.
const soon = 60 * time.Second
