package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/fsm/state"
)

// TestPurgeFiltered deletes what has ended in four partitions: a dry run deletes nothing, a signal ends the command between two
// deletions, and the same command deletes the rest. What is open stays.
func TestPurgeFiltered(t *testing.T) {
	const partitions, executions = 4, 120
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n := aNode(ctx, t, partitions)
	c, err := client.Dial(client.Options{Addrs: []string{n.GRPCAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is under way
	id := func(i int) string { return fmt.Sprintf("order-%d", i) }
	var wg sync.WaitGroup
	errs := make([]error, executions)
	in := map[uint32]int{}
	for i := range executions {
		in[state.PartitionOf("default", id(i), partitions)]++
		wg.Go(func() {
			errs[i] = start(ctx, c, id(i), "missing")
			if i > 0 && errs[i] == nil {
				_, errs[i] = c.Terminate(ctx, id(i), "enough")
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil || len(in) != partitions {
		t.Fatalf("executions by partition: %v, %v", in, err)
	}
	there := func() (left int) {
		t.Helper()
		for i := range executions {
			var none *api.Error
			switch _, err := c.Describe(ctx, id(i)); {
			case err == nil:
				left++
			case !errors.As(err, &none) || none.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND:
				t.Fatal(err)
			}
		}
		return left
	}
	sh := &shell{addr: n.GRPCAddr()}
	purge := []string{"purge", "--older-than", "1ms", "--prefix", "order-", "--force"}
	if stdout, stderr, code := sh.run("purge", "--older-than", "9m"); code != exitUsage {
		t.Errorf("without --force: exit %d: %s%s", code, stdout, stderr)
	}
	stdout, stderr, code := sh.run(append(purge, "--dry-run")...)
	if code != exitDone || strings.Count(stdout, "\n") != executions-1 || strings.Contains(stdout, id(0)+"\n") || !strings.Contains(stderr, fmt.Sprintf("would be deleted: %d executions", executions-1)) {
		t.Errorf("dry run: exit %d: %s%s", code, stdout, stderr)
	}
	if stdout, stderr, code = sh.run(append(purge, "--dry-run", "--json")...); code != exitDone || !json.Valid(bytes.Split([]byte(stdout), []byte("\n"))[0]) {
		t.Errorf("dry run: exit %d: %s%s", code, stdout, stderr)
	}
	if left := there(); left != executions {
		t.Fatalf("after dry runs %d of %d are left", left, executions)
	}

	signalled, signal := context.WithCancel(ctx)
	defer signal()
	var looks atomic.Int64
	interrupted := &shell{addr: n.GRPCAddr(), ctx: signalled, now: func() time.Time {
		if looks.Add(1) == executions/4 { // once for each that is deleted
			signal()
		}
		return fakeNow.Add(time.Duration(looks.Load()) * progressEvery / 10)
	}}
	stdout, stderr, code = interrupted.run(purge...)
	if code != exitFailed || !strings.Contains(stderr, "repeat the command") || !strings.Contains(stderr, "purging: ") || !strings.Contains(stdout, " deleted, ") {
		t.Errorf("interrupted: exit %d: %s%s", code, stdout, stderr)
	}
	left := there()
	if left <= 1 || left >= executions {
		t.Errorf("the interrupted command has left %d of %d", left, executions)
	}
	got := mustJSON(t, sh, purge...) // some deletions may have been under way
	if n := got["deleted"].(float64); n <= 0 || n > float64(left-1) || got["kept"] != 0.0 {
		t.Errorf("the next one found %v, %d were left", got, left)
	}
	if left := there(); left != 1 {
		t.Errorf("%d are left, want the open one alone", left)
	}
	if stdout, stderr, code := sh.run("purge", id(0)); code != exitConflict || !strings.Contains(stderr, "has not ended") {
		t.Errorf("what is open: exit %d: %s%s", code, stdout, stderr)
	}
}
