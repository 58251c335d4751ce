package cluster

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

// Process is a child process with a log file.
type Process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // how it ended; read after ended is closed
}

// Spawn starts a process, whose stderr, and stdout unless it is set, go to the file log.
func Spawn(cmd *exec.Cmd, log string) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the process has its own
	cmd.Stderr = f
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	withCaller(cmd)
	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, log: log, ended: make(chan struct{})}
	go p.reap()
	return p, nil
}

// spawner starts processes from a thread that never ends: Linux signals a child by Pdeathsig when the thread that
// started it ends.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go spawning(work)
	return work
})

// spawning runs until the caller's process ends.
func spawning(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

// reap waits for the end of the process, and ends with it.
func (p *Process) reap() {
	p.err = p.cmd.Wait()
	close(p.ended)
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Wait waits for the end of the process and returns how it ended, or an error after the timeout.
func (p *Process) Wait(timeout time.Duration) error {
	select {
	case <-p.ended:
		return p.err
	case <-time.After(timeout):
		return fmt.Errorf("%s still runs after %v", p.cmd.Path, timeout)
	}
}

// Kill ends the process and waits until it is gone. A process that has ended is left alone.
func (p *Process) Kill() error {
	if !p.Running() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("process %d has not ended a minute after it was killed", p.cmd.Process.Pid)
	}
}

// LastLog returns the end of the process's log.
func (p *Process) LastLog() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 1000
	return strings.TrimSpace(string(data[max(0, len(data)-most):]))
}
