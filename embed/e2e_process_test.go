package embed_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// process is a node in a process of its own.
type process struct {
	*exec.Cmd
	log   *logBuffer
	ready chan struct{}
	ended chan struct{} // after its end and that of its output
}

// builtDir is the folder of the server that tests have built, which TestMain removes, or empty.
var builtDir string

// built is the server's binary, which the first test that needs it builds.
var built = sync.OnceValues(func() (string, error) {
	var err error
	if builtDir, err = os.MkdirTemp("", "perdure-embed-test-"); err != nil {
		return "", err
	}
	binary := filepath.Join(builtDir, "node")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", binary, "perdure/cmd/node").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

// nodeBinary returns the server's binary.
func nodeBinary(t *testing.T) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// launch runs a node and waits until it says that it is ready.
func launch(t *testing.T, binary, dir, grpcAddr string) *process {
	t.Helper()
	p := &process{
		Cmd: exec.Command(binary, "dev", "--data", dir, "--grpc-addr", grpcAddr, "--http-addr", "127.0.0.1:0",
			"--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0", "--partitions", "4"),
		log: &logBuffer{}, ready: make(chan struct{}), ended: make(chan struct{}),
	}
	p.Stderr = p.log
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })
	go func() {
		lines := bufio.NewScanner(out)
		for ready := false; lines.Scan(); {
			if !ready && strings.Contains(lines.Text(), ": ready in ") {
				ready = true
				close(p.ready)
			}
		}
		_ = p.Wait() // it is killed: its exit code says nothing
		close(p.ended)
	}()
	select {
	case <-p.ready:
	case <-p.ended:
		t.Fatalf("the node ended:\n%s", p.log.tail())
	case <-time.After(testTimeout):
		t.Fatalf("the node was not ready within %v:\n%s", testTimeout, p.log.tail())
	}
	return p
}

// kill ends the process without a word.
func (p *process) kill(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
		return
	default:
	}
	if err := p.Process.Signal(syscall.SIGKILL); err != nil {
		select {
		case <-p.ended: // it has ended by itself meanwhile
		default:
			t.Fatalf("kill: %v", err)
		}
	}
	receive(t, "the end of the killed node", p.ended)
}

// TestKill kills a node in the middle of its work, twice. Workers and clients live on, and everything
// finishes with the right result.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the node's binary; left out with -short")
	}
	t.Parallel()
	const executions = 200
	binary, dir, addr := nodeBinary(t), filepath.Join(t.TempDir(), "data"), fixedAddr(t)
	p := launch(t, binary, dir, addr)
	w := connect(t, addr)
	l := newLedger()
	journey, leg := journeys(l)
	workers := []*worker{w.work(durable.WorkerOptions{}, journey, leg), w.work(durable.WorkerOptions{}, journey, leg)}

	finished, wait := travel(w, journey, executions, 24)
	for i := range 2 {
		finishes(t, finished, (i+1)*executions/3)
		p.kill(t)
		p = launch(t, binary, dir, addr)
	}
	wait()
	if t.Failed() {
		t.Logf("the node's log ends:\n%s", p.log.tail())
		return
	}
	repeated := l.verdict(t, executions*journeySteps)
	for _, x := range workers {
		x.noProblems()
		x.stop()
	}
	arrived(w, executions)
	t.Logf("%d executions, 2 kills, %d of %d steps ran again before they were acknowledged", executions, repeated, executions*journeySteps)

	// When there is no node at all, a client says that nothing was applied. It may find out by a start that it
	// sends to the node that has just gone, of which it cannot know.
	p.kill(t)
	until(t, "the client to know that there is no node", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := w.Start(ctx, client.StartOptions{ID: "late", Function: "journey", Input: []byte("1")})
		if !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Fatalf("without a node a start says %v", err)
		}
		if errors.Is(err, client.ErrOutcomeUnknown) {
			return err
		}
		return nil
	})
}
