package rpc_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
	"perdure/fsm"
	"perdure/fsm/restore"
	"perdure/fsm/state"
	"perdure/partition/identity"
)

// importInto sends a stopped node's states to another node, and returns the answer.
func importInto(t *testing.T, w *world, dir string, name uint64, partitions uint32, limit int) (*perdurev1.ImportResponse, error) {
	t.Helper()
	stamps, err := identity.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var stores []*fsm.ReadOnly
	for _, store := range stamps.StateStores(dir) {
		opened, err := fsm.OpenReadOnly(store.Dir, fsm.Options{Stamp: store.Stamp})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = opened.Close() }() // it was only read
		stores = append(stores, opened)
	}
	stream, err := perdurev1.NewRestoresClient(w.conn).Import(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	sent, cut := 0, errors.New("interrupted")
	err = fsm.ViewAll(stores, func(sources []state.Reader) error {
		plan, err := restore.New(sources, partitions)
		if err != nil {
			return err
		}
		return plan.Send(name, func(m *perdurev1.ImportRequest) error {
			if sent++; limit > 0 && sent > limit {
				return cut
			}
			return stream.Send(m)
		})
	})
	if err != nil && !errors.Is(err, cut) && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return stream.CloseAndRecv()
}

// A node's states come to a node with another number of partitions: its executions are there, go on, and end; a result
// that was there is there, and nothing runs twice. An interrupted import is repeated; a cluster that serves takes none.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	old := startNode(t, func(c *embed.Config) { c.DataDir = dir })
	w := connect(t, old)
	const many = 20
	s := w.hello(&perdurev1.Hello{WorkerId: "w", Functions: []string{"f"}, Capacity: many})
	incarnations := map[string]uint64{}
	for n := range many {
		name := fmt.Sprint("x", n)
		incarnations[name] = w.start(name, "f").Incarnation
	}
	var held []*perdurev1.Task
	for range many {
		task := s.task()
		held = append(held, task)
		events := stepEvents(task.Token.Id+":0", "first", []byte("1"))
		if len(held)%2 == 0 {
			events = append(events, completed("done"))
		}
		if s.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, Events: events}).GetCommit() == nil {
			t.Fatal("a commit was refused")
		}
	}
	journals := map[string][]*perdurev1.JournalEntry{}
	for name := range incarnations {
		journals[name] = w.journal(name)
	}
	if err := finish(old); err != nil {
		t.Fatal(err)
	}

	fresh := connect(t, startNode(t, func(c *embed.Config) { c.Partitions = 7 }))
	fresh.ns = w.ns
	if _, err := importInto(t, fresh, dir, 5, 6, 0); err == nil {
		t.Error("rows for 6 partitions are taken by 7")
	}
	if out, err := importInto(t, fresh, dir, 5, 7, 6); err != nil || out.Rows == 0 {
		t.Fatalf("an interrupted import: %v, %v", out, err)
	}
	_, err := importInto(t, fresh, dir, 6, 7, 0)
	refused(t, "another restore", err, perdurev1.Reason_REASON_RULE_BROKEN)
	out, err := importInto(t, fresh, dir, 5, 7, 0)
	if err != nil || out.Rows < many {
		t.Fatalf("the import: %v, %v", out, err)
	}
	if out, err := importInto(t, fresh, dir, 5, 7, 0); err != nil || out.Rows != 0 {
		t.Errorf("the same again: %v, %v", out, err)
	}
	_, err = importInto(t, fresh, dir, 6, 7, 0)
	refused(t, "a restore of a cluster that serves", err, perdurev1.Reason_REASON_RULE_BROKEN)

	for name, incarnation := range incarnations {
		if got := fresh.describe(name).Incarnation; got != incarnation {
			t.Errorf("%s is incarnation %d, was %d", name, got, incarnation)
		}
		if got := fresh.journal(name); !slices.EqualFunc(got, journals[name], func(a, b *perdurev1.JournalEntry) bool { return proto.Equal(a, b) }) {
			t.Errorf("the journal of %s is another", name)
		}
	}
	// The old worker's tasks are void; another worker gets each open one, once.
	next := fresh.hello(&perdurev1.Hello{WorkerId: "v", Functions: []string{"f"}, Capacity: many})
	for range many / 2 {
		task := next.task()
		stale := proto.CloneOf(held[slices.IndexFunc(held, func(h *perdurev1.Task) bool { return h.Token.Id == task.Token.Id })].Token)
		callRefused(t, "a commit of the old cluster's worker", <-next.ask(&perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Commit{
			Commit: &perdurev1.Commit{Task: stale, KnownSeq: task.NextSeq, NextChild: 1, Events: []*perdurev1.Event{completed("stolen")}}}}), perdurev1.Reason_REASON_STALE_TASK)
		next.commit(&perdurev1.Commit{Task: task.Token, KnownSeq: task.NextSeq, NextChild: 1, Events: []*perdurev1.Event{completed("done")}})
	}
	next.noTask()
	for name := range incarnations {
		if got := fresh.describe(name); got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			t.Errorf("%s is %v", name, got.Status)
		}
	}
	if got := fresh.start("one more", "f").Incarnation; got <= slices.Max(slices.Collect(func(yield func(uint64) bool) {
		for _, n := range incarnations {
			if !yield(n) {
				return
			}
		}
	})) {
		t.Errorf("a new execution has incarnation %d", got)
	}
}
