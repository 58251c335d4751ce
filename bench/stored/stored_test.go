package stored_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"perdure/bench/stored"
	"perdure/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Exit(m.Run(), goleak.IgnoreCurrent()) }

// TestFillAgain: a directory that was filled can be filled further, also after an error.
func TestFillAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	job := stored.Job{Dir: filepath.Join(t.TempDir(), "n1"), NodeID: "n1", PeerAddr: "127.0.0.1:0", Partitions: 2, Prefix: "stored", To: 300, Payload: 64}
	if err := stored.Fill(ctx, job); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	job.From, job.To = 300, 600
	if err := stored.Fill(ended, job); err == nil {
		t.Error("no error although the context has ended")
	}
	if err := stored.Fill(ctx, job); err != nil {
		t.Fatal(err)
	}
}
