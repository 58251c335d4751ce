package jepsen

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/internal/ingress/ingresstest"
)

// CallersOptions describe the load of malicious or many callers. The zero value is good.
type CallersOptions struct {
	// Unfinished requests of Size bytes are begun, without a token and each on a connection of its own, and not
	// finished; default 1000 of 20 MiB.
	Unfinished int
	Size       int64
	// Idle connections are opened: a third sends nothing, a third is idle after the handshake, a third sends
	// a byte a second; default 10,000.
	Idle int
	// MaxBytes bounds the memory of the node's process while the requests are unfinished; default 150 MB, and 220 MB
	// without a Token: a node that asks for none takes everybody's requests, up to --max-request-bytes (64 MiB).
	MaxBytes int64
	// Hold is how long each of the two lasts; default 10 s.
	Hold time.Duration
	// Token is the token of good callers; empty if the cluster asks for none.
	Token string
	Out   io.Writer
}

// CallersReport is the outcome of the attack.
type CallersReport struct {
	Before, During int64 // bytes of the node's process: before, and at most while requests were unfinished
	Sent           int64 // bytes of unfinished requests that the node took
	Calls          int   // of the good callers
	Longest        time.Duration
	WithIdle       int // calls of new callers while the connections were there
	Open           int // connections still open at the end
	Violations     []string
}

// String is the report for people.
func (r *CallersReport) String() string {
	return fmt.Sprintf("the node held %d MB before, %d MB at most with unfinished requests, of which it took %d MB\n"+
		"%d calls meanwhile, the longest %v; %d by new callers; %d idle connections were left open at the end\n",
		r.Before/1e6, r.During/1e6, r.Sent/1e6, r.Calls, r.Longest.Round(time.Millisecond), r.WithIdle, r.Open)
}

// CallersToken is a token that nodes started with CallersArgs accept.
const CallersToken = "a-token-of-the-harness-itself"

// CallersArgs are the arguments of nodes that ask for tokens; the file of tokens goes into dir.
func CallersArgs(dir string) ([]string, error) {
	row := fmt.Sprintf("- {name: harness, hash: %q, namespace: \"*\", role: admin}\n", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(CallersToken))))
	path := filepath.Join(dir, "tokens.yaml")
	return []string{"--tokens-file", path}, os.WriteFile(path, []byte(row), 0o600)
}

// Callers attacks the first node of a cluster, and calls it meanwhile.
func Callers(ctx context.Context, c *Cluster, o CallersOptions) (*CallersReport, error) {
	if o.Unfinished == 0 {
		o.Unfinished = 1000
	}
	if o.Size == 0 {
		o.Size = 20 << 20
	}
	if o.Idle == 0 {
		o.Idle = 10_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 150e6
		if o.Token == "" {
			o.MaxBytes = 220e6
		}
	}
	if o.Hold == 0 {
		o.Hold = 10 * time.Second
	}
	n := c.nodes[0]
	r := &CallersReport{}
	good := &goodCallers{ctx: ctx, c: c, n: n, token: o.Token}
	var err error
	if r.Before, err = n.memory(); err != nil {
		return r, err
	}
	stop := good.keepCalling()
	err = unfinishedRequests(ctx, n, o, r)
	fmt.Fprintf(o.Out, "unfinished requests: %d MB at most\n", r.During/1e6)
	if err == nil {
		err = idleConnections(ctx, n, o, r, good)
	}
	stop()
	r.Calls, r.Longest = good.calls, good.longest
	r.Violations = append(r.Violations, good.failed...)
	if r.During > o.MaxBytes {
		r.Violations = append(r.Violations, fmt.Sprintf("the node held %d bytes, at most %d are allowed", r.During, o.MaxBytes))
	}
	return r, err
}

// memory is the resident memory of the node's process, in bytes.
func (n *Node) memory() (int64, error) {
	n.mu.Lock()
	pid := n.cmd.Process.Pid
	n.mu.Unlock()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the system does not say how much memory a process holds")
}

// unfinishedRequests begins requests, sends of each as many bytes as the node takes, and watches the node's
// memory.
func unfinishedRequests(ctx context.Context, n *Node, o CallersOptions, r *CallersReport) error {
	var callers []*ingresstest.Caller
	defer func() {
		for _, c := range callers {
			_ = c.Close() // the attack is over
		}
	}()
	var wg sync.WaitGroup
	var sent atomic.Int64
	for range o.Unfinished {
		c, err := ingresstest.Dial(n.GRPCAddr, 0)
		if err != nil {
			return err
		}
		callers = append(callers, c)
		wg.Go(func() {
			req := c.Begin(perdurev1.Executions_Start_FullMethodName, "")
			req.Announce(uint32(o.Size))
			req.Push(o.Size-1, o.Hold)
			sent.Add(req.Sent())
		})
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	over := time.After(o.Hold)
	for {
		held, err := n.memory()
		if err != nil {
			return err
		}
		r.During = max(r.During, held)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			for _, c := range callers {
				_ = c.Close() // stops a caller that still sends
			}
			wg.Wait()
			r.Sent = sent.Load()
			return nil
		}
	}
}

// idleConnections opens connections and makes calls of new callers meanwhile.
func idleConnections(ctx context.Context, n *Node, o CallersOptions, r *CallersReport, good *goodCallers) error {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	conns := make([]net.Conn, 0, o.Idle)
	defer func() {
		for _, c := range conns {
			_ = c.Close() // the attack is over
		}
	}()
	for i := range o.Idle {
		c, err := net.Dial("tcp", n.GRPCAddr)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		conns = append(conns, c)
		if i%3 == 1 {
			_, _ = io.WriteString(c, preface) // a node that hangs up is within its rights
		}
	}
	fmt.Fprintf(o.Out, "%d connections were opened\n", len(conns))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for at := range max(int(o.Hold/time.Second), 1) {
		for i := 2; i < len(conns); i += 3 {
			_, _ = conns[i].Write([]byte{preface[at%len(preface)]})
		}
		for range 5 {
			calls, err := good.fresh(4)
			r.WithIdle += calls
			if err != nil {
				r.Violations = append(r.Violations, fmt.Sprintf("a new caller during %d idle connections: %v", len(conns), err))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			r.Open++
		}
	}
	return nil
}

// goodCallers call a node as clients do.
type goodCallers struct {
	ctx   context.Context
	c     *Cluster
	n     *Node
	token string

	mu      sync.Mutex
	number  int
	calls   int
	longest time.Duration
	failed  []string
}

func (g *goodCallers) dial() (*client.Client, error) {
	return client.Dial(client.Options{Addrs: []string{g.n.GRPCAddr}, AnyNode: true, Timeout: 10 * time.Second, Token: g.token, Logger: g.c.log})
}

// call makes one write.
func (g *goodCallers) call(cl *client.Client) error {
	g.mu.Lock()
	g.number++
	id := "good-" + strconv.Itoa(g.number)
	g.mu.Unlock()
	began := time.Now()
	_, err := cl.Start(g.ctx, client.StartOptions{ID: id, Function: "unserved", AllowUnknownFunction: true})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	g.longest = max(g.longest, time.Since(began))
	return err
}

// fresh makes calls on a connection of their own.
func (g *goodCallers) fresh(n int) (calls int, err error) {
	cl, err := g.dial()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	for range n {
		if err := g.call(cl); err != nil {
			return calls, err
		}
		calls++
	}
	return calls, nil
}

// keepCalling calls every 20 ms until stop.
func (g *goodCallers) keepCalling() (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		cl, err := g.dial()
		if err != nil {
			g.failed = append(g.failed, err.Error())
			return
		}
		defer func() { _ = cl.Close() }()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if err := g.call(cl); err != nil && g.ctx.Err() == nil {
				g.mu.Lock()
				g.failed = append(g.failed, "a call during the attack: "+err.Error())
				g.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}
