// Package role is the processes of a measurement beside the nodes: a worker, a client and a bare Raft server. Each is a
// process of its own, so that the CPU time of each is known apart.
//
// It owns the conversation with them. The caller runs its own binary with the argument "role" and a name. It
// sends JSON lines to the process's stdin and reads JSON lines from its stdout. A process ends by itself when
// its job is done or its stdin is closed, and never outlives its caller on Linux.
//
//	func main() {
//		if role.Asked(os.Args) { os.Exit(role.Main(os.Args[2:])) }
//		...
//		worker, err := role.StartWorker(ctx, binary, dir, job)
//		client, err := role.StartClient(binary, dir, job)
//		result, err := client.Result(ctx, func(m workload.Mark) error { ... })
//	}
package role

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"perdure/bench/cluster"
	"perdure/bench/workload"
)

// argument is the first argument of a process of this package.
const argument = "role"

// The names of roles.
const (
	workerRole = "worker"
	clientRole = "client"
	raftRole   = "raft"
	fillerRole = "filler"
)

// Asked reports whether a process with these arguments is one of this package.
func Asked(args []string) bool { return len(args) > 2 && args[1] == argument }

// Main is the program of a role. It returns the exit code.
func Main(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	in := json.NewDecoder(os.Stdin)
	out := &answers{enc: json.NewEncoder(os.Stdout)}
	var err error
	switch args[0] {
	case workerRole:
		err = beWorker(ctx, cancel, in, out)
	case clientRole:
		err = beClient(ctx, cancel, in, out)
	case raftRole:
		err = beRaft(ctx, cancel, in, out)
	case fillerRole:
		err = beFiller(ctx, cancel, in, out)
	default:
		err = fmt.Errorf("there is no role %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		_ = out.send(answer{Error: err.Error()}) // the caller reads the end of the log if it did not get this
		return 1
	}
	return 0
}

// untilClosed ends the context when the caller closes stdin.
func untilClosed(in *json.Decoder, cancel context.CancelCauseFunc) {
	var more json.RawMessage
	for in.Decode(&more) == nil {
	}
	cancel(errors.New("the caller is gone"))
}

// answer is one line of a process to its caller.
type answer struct {
	Ready  bool            `json:"ready,omitempty"`
	Leads  bool            `json:"leads,omitempty"`
	Mark   workload.Mark   `json:"mark,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// answers writes answers from one goroutine at a time.
type answers struct{ enc *json.Encoder }

func (a *answers) send(x answer) error { return a.enc.Encode(x) }

// Process is a process of this package, as its caller sees it.
type Process struct {
	*cluster.Process
	stdin io.WriteCloser
	enc   *json.Encoder // into stdin
	lines chan answer   // closed at the end of stdout
}

// endTimeout bounds the end of a process that is asked to end.
const endTimeout = 30 * time.Second

// start starts a role and sends it a job.
func start(binary, dir, name string, job any) (*Process, error) {
	return startCommand(exec.Command(binary, argument, name), dir, name, job)
}

// startJob starts a role for the job of a workload.
func startJob(binary, dir, name string, job workload.Job) (*Process, error) {
	if !job.Yields {
		return start(binary, dir, name, job)
	}
	// Linux lets a nice process end its slice of milliseconds before one that wakes, an idle one not.
	yield := []string{"chrt", "--idle", "0"}
	if _, err := exec.LookPath(yield[0]); err != nil {
		yield = []string{"nice", "-n", "19"}
	}
	return startCommand(exec.Command(yield[0], append(yield[1:], binary, argument, name)...), dir, name, job)
}

// startCommand starts the command of a role and sends it a job.
func startCommand(cmd *exec.Cmd, dir, name string, job any) (*Process, error) {
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
	p, err := cluster.Spawn(cmd, filepath.Join(dir, name+".log"))
	err = errors.Join(err, stdoutOf.Close())
	if err != nil {
		return nil, errors.Join(err, stdout.Close())
	}
	out := &Process{Process: p, stdin: stdin, enc: json.NewEncoder(stdin), lines: make(chan answer)}
	go out.read(stdout)
	if err := out.enc.Encode(job); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// read ends with the process.
func (p *Process) read(stdout *os.File) {
	defer close(p.lines)
	defer stdout.Close()
	in := bufio.NewReaderSize(stdout, 1<<20)
	dec := json.NewDecoder(in)
	for {
		var a answer
		if dec.Decode(&a) != nil {
			return
		}
		p.lines <- a
	}
}

// next waits for the next answer.
func (p *Process) next(ctx context.Context) (answer, error) {
	select {
	case a, ok := <-p.lines:
		if !ok {
			return answer{}, fmt.Errorf("the process has ended: %s", p.LastLog())
		}
		if a.Error != "" {
			return answer{}, errors.New(a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

// ready waits until the process says that it is ready.
func (p *Process) ready(ctx context.Context) error {
	a, err := p.next(ctx)
	if err == nil && !a.Ready {
		err = fmt.Errorf("unexpected answer %+v", a)
	}
	return err
}

// Close ends the process: by closing its stdin, and by force if it does not end.
func (p *Process) Close() error {
	err := p.stdin.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	go func() { // what nobody reads any more must not block the process
		for range p.lines { //nolint:revive // discarded
		}
	}()
	if waited := p.Wait(endTimeout); p.Running() {
		return errors.Join(err, waited, p.Kill())
	}
	return err
}
