package fsm

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// shortQueries are queries about every execution of a script, and what they read.
func shortQueries(t *testing.T, s *script) (out []*commandv1.Query) {
	t.Helper()
	list, err := query.Answer(s.states[len(s.states)-1], 0, &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: &perdurev1.ListRequest{Limit: 1000}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.GetList().Executions {
		q := func(of *commandv1.Query) { of.Namespace, of.Id = ns, e.Id; out = append(out, of) }
		q(&commandv1.Query{Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}})
		q(&commandv1.Query{Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}})
		for version := range uint64(4) {
			q(&commandv1.Query{Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: e.Incarnation, Version: version}}})
		}
	}
	if len(out) == 0 {
		t.Fatal("the script starts nothing")
	}
	return out
}

// TestShortReads: reads without a snapshot, while entries are applied and the state is replaced, answer as the state at
// the index that they return.
func TestShortReads(t *testing.T) {
	s := newScript(t, 8, 400)
	queries := shortQueries(t, s)
	source := open(t, vfs.NewMem(), "source", true)
	s.apply(t, source, 0, 300, 20)
	var content bytes.Buffer
	if _, err := source.WriteContent(&content); err != nil {
		t.Fatal(err)
	}
	store := open(t, vfs.NewMem(), "state", true)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				q := queries[rand.IntN(len(queries))]
				reply, index, err := store.querySteady(q)
				if errors.Is(err, errChanged) {
					continue
				}
				n, ok := s.position(index)
				if err != nil || !ok || n == 0 {
					t.Errorf("read at %d: %v", index, err)
					return
				}
				if want, err := query.Answer(s.states[n-1], 0, q); err != nil || !proto.Equal(reply, want) {
					t.Errorf("%v at %d: %v, a replay has %v (%v)", q, index, reply, want, err)
					return
				}
			}
		})
	}
	s.apply(t, store, 0, 200, 3)
	if err := store.Restore(io.NopCloser(bytes.NewReader(content.Bytes()))); err != nil {
		t.Error(err)
	}
	s.apply(t, store, 250, 400, 3)
	close(stop)
	readers.Wait()
	for _, q := range queries { // while nothing is applied, none fails
		reply, index, err := store.querySteady(q)
		if want, _ := query.Answer(s.states[len(s.states)-1], 0, q); err != nil || index != s.last(400) || !proto.Equal(reply, want) {
			t.Fatalf("%v at %d: %v, %v; want %v", q, index, reply, err, want)
		}
	}
}

// TestSteadyVersions: a read ends when a batch begins after it, and none begins while one is stored, after a Restore,
// or before the first batch.
func TestSteadyVersions(t *testing.T) {
	s := newScript(t, 9, 30)
	q := shortQueries(t, s)[0]
	store := open(t, vfs.NewMem(), "state", true)
	unknown := func(when string) {
		t.Helper()
		if _, _, err := store.querySteady(q); !errors.Is(err, errChanged) {
			t.Errorf("%s: %v", when, err)
		}
	}
	unknown("before the first batch")
	s.apply(t, store, 0, 10, 1)
	if _, _, err := store.querySteady(q); err != nil {
		t.Error(err)
	}
	before := steadyView{view{store.db}, &store.steady, store.steady.version.Load()}
	read := func() (get, scan error) {
		_, _, get = before.Get(keys.MetaKey("x"))
		return get, before.Scan([]byte{0}, []byte{255}, func(_, _ []byte) bool { return false })
	}
	if get, scan := read(); get != nil || scan != nil {
		t.Error(get, scan)
	}
	s.apply(t, store, 10, 11, 1)
	if get, scan := read(); !errors.Is(get, errChanged) || !errors.Is(scan, errChanged) {
		t.Error("read of a former version:", get, scan)
	}
	store.steady.begin()
	unknown("while a batch is stored")
	store.steady.end(store.machine)
	var content bytes.Buffer
	if _, err := store.WriteContent(&content); err != nil {
		t.Fatal(err)
	}
	if err := store.Restore(io.NopCloser(bytes.NewReader(content.Bytes()))); err != nil {
		t.Fatal(err)
	}
	unknown("after a Restore")
	s.apply(t, store, 11, 12, 1)
	if _, index, err := store.querySteady(q); err != nil || index != s.last(12) {
		t.Errorf("after the next batch: %d, %v", index, err)
	}
}

// A partition that is being restored answers nothing, also by a read without a snapshot.
func TestSteadyWhileImporting(t *testing.T) {
	store := open(t, vfs.NewMem(), "state", true)
	data, err := EncodeEntry(&commandv1.Entry{TimeMs: 1, Commands: []*commandv1.Command{
		{Kind: &commandv1.Command_Import{Import: &commandv1.Import{Restore: 7}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err, failed := store.Apply(&raft.Log{Index: 1, Type: raft.LogCommand, Data: data}).(error); failed {
		t.Fatal(err)
	}
	q := &commandv1.Query{Namespace: ns, Id: "e", Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}}
	steady, _, err := store.querySteady(q)
	if err != nil {
		t.Fatal(err)
	}
	var whole *commandv1.QueryReply
	if err := store.View(func(r state.Reader) (err error) {
		whole, err = query.Answer(r, 0, q)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(steady, whole) || whole.GetError() == nil {
		t.Errorf("answers %v, by a snapshot %v", steady, whole)
	}
}
