package main

import (
	"context"
	"flag"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"perdure/backup"
	"perdure/bench/stored"
	"perdure/embed"
)

// The size of the states that TestIncrementalBackup backs up, in 3 partitions. Large ones:
//
//	go test ./cmd/perdure -run TestIncrementalBackup -v -backup.executions 100000 -backup.payload 2000 -timeout 30m
var (
	storedExecutions = flag.Int64("backup.executions", 2000, "executions that the incremental backup's test stores")
	storedPayload    = flag.Int("backup.payload", 200, "bytes of each of their inputs and results")
)

// TestIncrementalBackup backs up executions that have ended, adds one hundredth, and backs up again, with a restart of the
// node between: the second backup copies less than a twentieth of the first. A third one, a full copy,
// has no deltas. Each has its state.
func TestIncrementalBackup(t *testing.T) {
	const partitions = 3
	ctx, cancel := context.WithTimeout(t.Context(), max(3*testTimeout, time.Duration(*storedExecutions)*5*time.Millisecond))
	defer cancel()
	job := stored.Job{Dir: filepath.Join(t.TempDir(), "data"), NodeID: "n1", PeerAddr: "127.0.0.1:0", Partitions: partitions, Prefix: "stored",
		To: *storedExecutions, Payload: *storedPayload}
	fill := func() {
		t.Helper()
		if err := stored.Fill(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	store := filepath.Join(t.TempDir(), "store")
	backedUp := func(args ...string) map[string]any {
		t.Helper()
		n, err := embed.Start(ctx, embed.Config{DataDir: job.Dir, NodeID: job.NodeID, Partitions: partitions, DiskReserve: 1 << 20,
			GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := n.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}()
		return mustJSON(t, &shell{addr: n.GRPCAddr()}, append([]string{"backup", "create", store}, args...)...)
	}
	fill()
	first := backedUp()
	job.Partitions, job.From, job.To = 0, 0, max(*storedExecutions/100, 1)
	job.Prefix = "more"
	fill()
	second := backedUp()
	third := backedUp("--full")
	offline := &shell{addr: "127.0.0.1:1"}
	for i, r := range []map[string]any{first, second, third} {
		want := float64(*storedExecutions)
		if i > 0 {
			want += float64(job.To)
		}
		checked := mustJSON(t, offline, "verify", "--backup", store, r["name"].(string))
		if checked["ok"] != true || checked["executions"] != want {
			t.Fatalf("backup %d: %v, want %v executions", i, checked, want)
		}
	}
	whole, changed := first["copied"].(float64), second["copied"].(float64)
	t.Logf("%d executions: %.0f bytes copied; one hundredth more: %.0f bytes, %.2f %%", *storedExecutions, whole, changed, 100*changed/whole)
	if changed <= 0 || changed*20 >= whole {
		t.Fatalf("the second backup copied %.0f bytes, the first %.0f", changed, whole)
	}
	opened, err := backup.OpenFolder(store)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		made   map[string]any
		deltas int
	}{{first, 0}, {second, partitions}, {third, 0}} { // the third copies the tables that the store lacks, whole
		m, err := backup.Read(ctx, opened, r.made["name"].(string))
		if err != nil {
			t.Fatal(err)
		}
		deltas := 0
		for _, s := range m.States {
			deltas += len(s.Deltas)
		}
		if deltas != r.deltas {
			t.Errorf("%v: %d deltas, want %d", r.made, deltas, r.deltas)
		}
	}
}
