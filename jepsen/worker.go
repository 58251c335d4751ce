package jepsen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"perdure/client"
	"perdure/durable"
)

// workerEnv, in the environment, makes a program that calls BeWorker a worker: it has the worker's name, its
// lease, its concurrency, the file of its book and the addresses of the nodes, with spaces between.
const workerEnv = "PERDURE_JEPSEN_WORKER"

// digestEnv has the worker's component digest; empty for none.
const digestEnv = "PERDURE_JEPSEN_DIGEST"

// Worker is a process that works on the nodes of graphs and on executions. It is this very program, started
// again; see BeWorker. It keeps two books: a line for each call of the graphs' function, written before the
// function acts, and one for what it does for executions; see StepNote.
type Worker struct {
	process
	Book, Steps string
}

// StartWorkers starts n worker processes and waits until each was welcomed by the cluster once. They live
// until they are killed, or the cluster is closed. The program must call BeWorker first thing in its main
// function.
func (c *Cluster) StartWorkers(ctx context.Context, n, concurrency int, lease time.Duration) error {
	return c.startWorkers(ctx, n, concurrency, lease, "")
}

// startWorkers is StartWorkers for workers of a digest; empty for none.
func (c *Cluster) startWorkers(ctx context.Context, n, concurrency int, lease time.Duration, digest string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for range n {
		w := &Worker{process: process{c: c, Name: "w" + strconv.Itoa(len(c.workers)+1)}}
		w.LogFile, w.Book = filepath.Join(c.dir, w.Name+".log"), filepath.Join(c.dir, w.Name+".book")
		w.Steps = stepsBook(w.Book)
		w.command = func() *exec.Cmd {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), workerEnv+"="+strings.Join(append([]string{w.Name, lease.String(), strconv.Itoa(concurrency), w.Book},
				c.Addrs()...), " "), digestEnv+"="+digest)
			return cmd
		}
		c.workers = append(c.workers, w)
		if err := w.Start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	for _, w := range c.workers {
		if err := waitFor(ctx, w.Name+" to be welcomed", func(context.Context) error {
			if _, err := os.Stat(w.Book); err != nil {
				return fmt.Errorf("%w; last log lines: %s", err, w.LastLogLines())
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// injectWorker injects a fault into one of the workers.
func (c *Cluster) injectWorker(f Fault, rng *rand.Rand) (*Wound, error) {
	if len(c.workers) == 0 {
		return nil, fmt.Errorf("fault %s: there are no worker processes: only graphs and executions have some", f.Name)
	}
	w := &Wound{Fault: f, Worker: c.workers[rng.IntN(len(c.workers))], At: time.Now()}
	c.log.Info("fault", "name", f.Name, "worker", w.Worker.Name)
	return w, w.doWorker(f.Break)
}

func (w *Wound) healWorker() error {
	defer func() { w.Healed = time.Now() }()
	return w.doWorker(w.Fault.Heal)
}

// doWorker does each action to the worker that was hit.
func (w *Wound) doWorker(actions []Action) error {
	for _, a := range actions {
		var err error
		switch a {
		case Kill:
			err = w.Worker.Kill()
		case Launch:
			err = w.Worker.Start()
		case Pause:
			err = w.Worker.Pause()
		case Resume:
			err = w.Worker.Resume()
		default:
			err = errors.New("action does not apply to workers")
		}
		if err != nil {
			return fmt.Errorf("fault %s: %s: %w", w.Fault.Name, a, err)
		}
	}
	return nil
}

// Call is a line of a worker's book.
type Call struct {
	// Attempt is the execution that was worked on, Node what the graph calls its node.
	Attempt, Node string
}

// Calls are the books of all workers.
func (c *Cluster) Calls() ([]Call, error) {
	var out []Call
	for _, w := range c.workers {
		f, err := os.Open(w.Book)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if attempt, node, ok := strings.Cut(lines.Text(), "\t"); ok {
				out = append(out, Call{attempt, node})
			}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// BeWorker works until a signal stops the process, if the process was started as a worker, and returns its
// exit code. Otherwise it returns at once, and is is false.
func BeWorker() (code int, is bool) {
	be, how := beWorker, os.Getenv(workerEnv)
	if how == "" {
		be, how = beWorked, os.Getenv(workedEnv)
	}
	if how == "" {
		return 0, false
	}
	if err := be(strings.Fields(how)); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1, true
	}
	return 0, true
}

func beWorker(how []string) error {
	if len(how) < 5 {
		return fmt.Errorf("%s has %d words, not 5", workerEnv, len(how))
	}
	name, bookFile, addrs := how[0], how[3], how[4:]
	lease, err := time.ParseDuration(how[1])
	concurrency, err2 := strconv.Atoi(how[2])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cl, err := client.Dial(client.Options{Addrs: addrs, Logger: log})
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, steps := &book{name: bookFile}, &book{name: stepsBook(bookFile)}
	note := steps.noteStep(name)
	w := durable.NewWorker(cl, durable.WorkerOptions{Name: name, Lease: lease, Concurrency: concurrency, StopGrace: time.Second,
		OnEvent: noteEvent(note), Digest: os.Getenv(digestEnv)})
	if digest := os.Getenv(digestEnv); digest != "" {
		w.Register(versionFunctions(digest)...)
	}
	w.Register(graphFunction(b.note))
	w.Register(stepFunction(note))
	w.Register(waitingFunction(note))
	newScaleFunctions(note).register(w)
	w.Register(sagaFunction(note))
	w.Register(endsFunctions()...)
	w.Register(eternalFunction, bankAccount, bankTransfer, bankAudit, tallyEntity, originFunction)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-w.Ready():
	case err := <-ended:
		return err
	}
	if err := errors.Join(serveHeap(bookFile), b.open()); err != nil {
		return err
	}
	return <-ended
}

// book is the file in which a worker notes what it does. A line is one write, so a killed worker leaves
// whole lines.
type book struct {
	name string
	mu   sync.Mutex
	f    *os.File
}

func (b *book) open() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.f == nil {
		b.f, err = os.OpenFile(b.name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	}
	return err
}

func (b *book) note(attempt, node string) error { return b.line(attempt, node) }

func (b *book) line(words ...string) error {
	if err := b.open(); err != nil {
		return err
	}
	_, err := b.f.WriteString(strings.Join(words, "\t") + "\n")
	return err
}

// stepsBook is the book of steps next to a book.
func stepsBook(book string) string { return strings.TrimSuffix(book, ".book") + ".steps" }
