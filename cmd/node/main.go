package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"perdure/embed"
	"perdure/internal/timerslack"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	p := &process{
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		lookup:  os.LookupEnv,
		signals: signals,
		exit:    os.Exit,
		start: func(ctx context.Context, cfg embed.Config) (server, error) {
			return embed.Start(ctx, cfg)
		},
		limitMemory: limitMemory,
		relaxTimers: func() error { return timerslack.Relax(timerslack.Server) },
	}
	os.Exit(p.run(os.Args[1:]))
}

// process is one run of this command with its environment, which tests replace.
type process struct {
	stdout  io.Writer
	stderr  io.Writer
	lookup  func(name string) (string, bool)
	signals <-chan os.Signal
	// exit ends the process at once. A test's may return.
	exit  func(code int)
	start func(ctx context.Context, cfg embed.Config) (server, error)
	// limitMemory makes the garbage collector keep to the process's memory limit until ctx ends; nil leaves
	// it alone.
	limitMemory func(ctx context.Context, cfg embed.Config, lookup func(string) (string, bool), log *slog.Logger)
	// relaxTimers lets the process's timers be late, for which it executes the program again; nil leaves them alone.
	relaxTimers func() error
}

// server is the part of *embed.Node that a process needs.
type server interface {
	GRPCAddr() string
	HTTPAddr() string
	// Done is closed when the node halted by itself; Err then says why.
	Done() <-chan struct{}
	Err() error
	Close(ctx context.Context) error
}

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// serve runs one node from its start to its stop and returns the exit code. announce is called once, when
// the node is ready.
func (p *process) serve(cfg embed.Config, announce func(n server, took time.Duration)) int {
	began := time.Now()

	// 1. The timers, because the program begins again, and the log, because every later part may write to it. The node shares it.
	var strict error
	if p.relaxTimers != nil {
		strict = p.relaxTimers()
	}
	log := cfg.NewLogger(p.stderr)
	cfg.Logger = log
	log.Info("starting", "event", "node_starting", "version", version(), "settings", cfg)
	if strict != nil {
		log.Info("the process's timers keep the kernel's default slack", "event", "timers_strict", "error", strict)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.limitMemory != nil {
		p.limitMemory(ctx, cfg, p.lookup, log)
	}

	// 2. The first signal asks for an orderly stop, also of a start that takes long; a second one ends the
	// process at once. It listens before it starts the node, so that no signal is lost.
	stopAsked, unlisten := p.listen(log)
	defer unlisten()

	// 3. The node. The context ends with the node; until the node runs, the first signal ends it.
	n, err := p.startOrStop(ctx, cancel, cfg, stopAsked)
	if err != nil {
		select {
		case <-stopAsked:
			log.Info("stopped before ready", "event", "node_stopped", "error", err)
			return exitDone
		default:
			fmt.Fprintf(p.stderr, "node: cannot start: %v\n", err)
			return exitFailed
		}
	}

	// 4. Ready: it leads its partitions and answers calls.
	took := time.Since(began)
	log.Info("ready", "event", "node_ready", "grpc", n.GRPCAddr(), "http", n.HTTPAddr(), "took", took)
	announce(n, took)

	// 5. Serve, until a signal asks to stop or the node halts by itself (a damaged store, a diverged
	// replica).
	code := exitDone
	if halted := waitForEnd(stopAsked, n.Done()); halted {
		fmt.Fprintf(p.stderr, "node: halted: %v\n", n.Err())
		code = exitFailed
	}
	log.Info("stopping", "event", "node_stopping", "grace", cfg.ShutdownGrace)

	// 6. Stop, in order and within the grace. Work that is not done by then is left as after a crash: the
	// next start replays it.
	closing, release := context.WithTimeout(context.Background(), cfg.ShutdownGrace)
	defer release()
	if err := n.Close(closing); err != nil {
		fmt.Fprintf(p.stderr, "node: did not stop in order: %v\n", err)
		return exitFailed
	}
	log.Info("stopped", "event", "node_stopped", "uptime", time.Since(began))
	return code
}

// listen closes stopAsked at the first signal and ends the process at the second. unlisten stops listening
// and blocks until it has stopped.
func (p *process) listen(log *slog.Logger) (stopAsked <-chan struct{}, unlisten func()) {
	asked := make(chan struct{})
	quit := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for count := 1; ; count++ {
			select {
			case sig := <-p.signals:
				if count > 1 {
					fmt.Fprintf(p.stderr, "node: second signal (%v): ending at once\n", sig)
					p.exit(exitFailed)
					return
				}
				log.Info("signal", "event", "signal", "signal", sig.String())
				close(asked)
			case <-quit:
				return
			}
		}
	}()
	return asked, func() { close(quit); <-ended }
}

// startOrStop starts the node; stopAsked cancels a start that is still under way, and nothing later.
func (p *process) startOrStop(ctx context.Context, cancel func(), cfg embed.Config, stopAsked <-chan struct{}) (server, error) {
	started := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-stopAsked:
			cancel()
		case <-started:
		}
	}()
	n, err := p.start(ctx, cfg)
	close(started)
	<-watched
	return n, err
}

// waitForEnd waits for a request to stop or for the node to halt, and reports whether the node halted. When
// both have happened the request counts: a stop during the start may halt the node.
func waitForEnd(stopAsked, done <-chan struct{}) (halted bool) {
	select {
	case <-stopAsked:
		return false
	case <-done:
	}
	select {
	case <-stopAsked:
		return false
	default:
		return true
	}
}
