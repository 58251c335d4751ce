// Package sdk runs Resonate's SDK for measurements: one process of Node, with an instance of the SDK for each node of
// a cluster. A client's process makes calls, a worker's process executes the functions that clients name.
//
// The package owns that process and the lines that it exchanges with it. The SDK is unmodified; the program (program.mjs)
// counts its requests. Calls go to the process as they come, so as many are under way as callers wait. Nothing is
// repeated: a process that ends fails all calls.
//
//	p, err := sdk.Start(ctx, dir, sdk.Client, urls)
//	defer p.Close()
//	err = p.Call(ctx, sdk.Call{Kind: "run", ID: id, N: n, Text: text}, &result)
package sdk

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"perdure/bench/cluster"
	"perdure/internal/resonatesdk"
)

// program is what Node runs.
//
//go:embed program.mjs
var program []byte

const programName = "program.mjs"

// The roles of a program.
const (
	Client = "client"
	Worker = "worker"
)

// endTimeout bounds the end of a program that is asked to end, readyTimeout its start.
const (
	endTimeout   = 10 * time.Second
	readyTimeout = time.Minute
)

// Install installs the SDK and the program into an empty folder; resonatesdk.ErrUnavailable on a machine without npm.
func Install(ctx context.Context, dir string) error {
	if err := resonatesdk.Install(ctx, dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, programName), program, 0o644)
}

// Call is one call of a function.
type Call struct {
	// Kind is run, steps or rpc: a function without steps in the client, one with three steps, or one without steps in a
	// worker.
	Kind string `json:"kind"`
	// ID is the promise's. N is the number that the function returns, in steps with 6 added; it selects the node.
	ID string `json:"id"`
	N  int64  `json:"n"`
	// Text is a further argument, of any size.
	Text string `json:"text"`
	// Number tells calls apart; the program sets it.
	Number int64 `json:"number"`
}

// answer is a line of the process.
type answer struct {
	Ready    bool            `json:"ready"`
	Number   int64           `json:"number"`
	Result   json.RawMessage `json:"result"`
	Error    string          `json:"error"`
	Requests int64           `json:"requests"`
}

// Program is a running process. Its methods are safe for concurrent use.
type Program struct {
	process *cluster.Process
	stdin   io.WriteCloser
	ready   chan struct{}
	over    chan struct{} // closed at the end of stdout

	mu       sync.Mutex
	enc      *json.Encoder // into stdin
	calls    int64
	requests int64
	waiting  map[int64]chan answer
}

// Start starts a program of a role in the folder of Install, and waits until it has a stream at each node.
func Start(ctx context.Context, dir, role string, urls []string) (*Program, error) {
	cmd := exec.Command("node", append([]string{programName, role}, urls...)...)
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of our own: cmd.StdoutPipe is closed by Wait, with lines unread.
	stdout, stdoutOf, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = stdoutOf
	process, err := cluster.Spawn(cmd, filepath.Join(dir, role+".log"))
	if err = errors.Join(err, stdoutOf.Close()); err != nil {
		return nil, errors.Join(err, stdout.Close())
	}
	p := &Program{process: process, stdin: stdin, enc: json.NewEncoder(stdin), ready: make(chan struct{}), over: make(chan struct{}), waiting: map[int64]chan answer{}}
	go p.read(stdout)
	if err := p.started(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// started waits until the program is ready.
func (p *Program) started(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("the SDK has no streams after %v", readyTimeout))
	defer cancel()
	select {
	case <-p.ready:
		return nil
	case <-p.over:
		return p.lost()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lost is the error of a process that has ended.
func (p *Program) lost() error {
	return fmt.Errorf("the SDK's process has ended: %s", p.process.LastLog())
}

// read ends with the process.
func (p *Program) read(stdout *os.File) {
	defer close(p.over)
	defer stdout.Close()
	dec := json.NewDecoder(bufio.NewReaderSize(stdout, 1<<16))
	for {
		var a answer
		if dec.Decode(&a) != nil {
			return
		}
		if a.Ready {
			close(p.ready)
			continue
		}
		p.mu.Lock()
		p.requests = max(p.requests, a.Requests)
		caller := p.waiting[a.Number]
		delete(p.waiting, a.Number)
		p.mu.Unlock()
		if caller != nil {
			caller <- a
		}
	}
}

// Call has a client make a call and decodes its result. It blocks until the call ends, ctx ends, or the process does.
func (p *Program) Call(ctx context.Context, c Call, result any) error {
	answered := make(chan answer, 1)
	if err := p.send(c, answered); err != nil {
		return err
	}
	select {
	case a := <-answered:
		if a.Error != "" {
			return errors.New(a.Error)
		}
		return json.Unmarshal(a.Result, result)
	case <-p.over:
		return p.lost()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Program) send(c Call, answered chan answer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	c.Number = p.calls
	p.waiting[c.Number] = answered
	if err := p.enc.Encode(c); err != nil {
		delete(p.waiting, c.Number)
		return errors.Join(err, p.lost())
	}
	return nil
}

// Requests is how many requests of the protocol the client's SDK has sent until the last call ended.
func (p *Program) Requests() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Done is closed when the process has ended.
func (p *Program) Done() <-chan struct{} { return p.over }

// Close ends the process and waits for its end. Calls under way fail.
func (p *Program) Close() error {
	err := p.stdin.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // the process has ended
	}
	if waited := p.process.Wait(endTimeout); p.process.Running() {
		err = errors.Join(err, waited, p.process.Kill())
	}
	<-p.over
	return err
}
