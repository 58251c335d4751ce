package jepsen

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// process is a program of the harness's that can be killed, frozen and started again: a node, or a worker.
type process struct {
	c *Cluster
	// Name is its name in reports; LogFile gets all its output, over all of its starts.
	Name, LogFile string
	command       func() *exec.Cmd // a new one for each start

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
	killed bool          // its end is our doing
}

// Start starts the process and returns at once. One that runs already is left alone.
func (p *process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return nil
	}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd := p.command()
	fmt.Fprintf(log, "--- %s: %s\n", time.Now().UTC().Format(time.RFC3339Nano), strings.Join(cmd.Args[1:], " "))
	cmd.Stdout, cmd.Stderr = log, log
	ownGroup(cmd)
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	p.cmd, p.ended, p.killed = cmd, make(chan struct{}), false
	p.c.log.Info("process started", "event", "process_started", "process", p.Name, "pid", cmd.Process.Pid)
	go p.reap(cmd, p.ended)
	return nil
}

// spawn starts a process from a thread that never ends: with Pdeathsig, Linux signals the child when the
// thread that started it ends.
func spawn(cmd *exec.Cmd) error {
	answer := make(chan error)
	spawner() <- func() { answer <- cmd.Start() }
	return <-answer
}

var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go spawning(work)
	return work
})

// spawning runs until the process ends.
func spawning(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

// reap waits for the end of a process.
func (p *process) reap(cmd *exec.Cmd, ended chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	expected := p.killed
	p.mu.Unlock()
	if !expected {
		p.c.unexpected("%s ended by itself: %v; last log lines: %s", p.Name, err, p.LastLogLines())
	}
	close(ended)
}

// LastLogLines returns the last lines of its log.
func (p *process) LastLogLines() string {
	data, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	const most = 1000
	if len(data) > most {
		data = data[len(data)-most:]
	}
	return strings.TrimSpace(string(data))
}

// running is Running; the caller holds the lock.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Running reports whether there is a process; a paused one counts.
func (p *process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// Kill ends the process at once (SIGKILL), paused or not, and returns when it is gone.
func (p *process) Kill() error { return p.end(sigKill) }

// Stop asks the process to end in order (SIGTERM) and returns when it has, but not later than after a
// minute, with an error.
func (p *process) Stop() error { return p.end(sigTerm) }

func (p *process) end(sig os.Signal) error {
	p.mu.Lock()
	if !p.running() {
		p.mu.Unlock()
		return nil
	}
	p.killed = true
	process, ended := p.cmd.Process, p.ended
	p.mu.Unlock()
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v to %s: %w", sig, p.Name, err)
	}
	select {
	case <-ended:
		p.c.log.Info("process ended", "event", "process_ended", "process", p.Name, "signal", sig.String())
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("%s has not ended a minute after %v", p.Name, sig)
	}
}

// startExpendable starts the process, if it does not run, as one that may end by itself.
func (p *process) startExpendable() error {
	if err := p.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	return nil
}

// Pause stops the process (SIGSTOP); Resume lets it continue, with all its deadlines passed.
func (p *process) Pause() error { return p.signal(sigStop) }

// Resume ends a Pause.
func (p *process) Resume() error { return p.signal(sigResume) }

func (p *process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return fmt.Errorf("%v to %s: it does not run", sig, p.Name)
	}
	p.c.log.Info("sending signal", "event", "process_signal", "process", p.Name, "signal", sig.String())
	return p.cmd.Process.Signal(sig)
}
