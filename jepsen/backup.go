package jepsen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// BackupOptions say how to back up a cluster and restore it. The zero value is one round.
type BackupOptions struct {
	// Rounds are backups of one cluster, each restored into a cluster of its own; default 1.
	Rounds int
	// Faults are taken in turn, one while each backup is made; default BackupFaults. Hold is how long one lasts;
	// default 3 s.
	Faults []Fault
	Hold   time.Duration
	// KillCreate has each create killed at a random moment and run again.
	KillCreate bool
	// Store is the URL of the backups, where the backups of other clusters may be; default: a folder of the cluster's.
	Store string
	// Rate is create's --rate, so that there is a midst of it; default 2MiB.
	Rate string
	// Clients run executions, Functions transfers between Accounts, Graphs graphs of up to MaxNodes nodes, at a time;
	// defaults 48, 8, 200, 3 and 20.
	Clients, Functions, Accounts, Graphs, MaxNodes int
	// Workers, Lease, StepTime and Timeout are as with Executions.
	Workers                  int
	Lease, StepTime, Timeout time.Duration
	// Warm is the least time of load before a create, which begins at most as long after it; default 4 s.
	Warm time.Duration
	// Bound is when all that was restored has to have ended; default 90 s.
	Bound time.Duration
	Seed  uint64
	Out   io.Writer
}

// BackupFaults kill nodes.
const BackupFaults = "kill-leader,kill-follower"

func (o *BackupOptions) fill() {
	o.Rounds = fallback(o.Rounds, 1)
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults(BackupFaults)
	}
	o.Hold, o.Rate = fallback(o.Hold, 3*time.Second), fallback(o.Rate, "2MiB")
	o.Clients, o.Functions, o.Accounts = fallback(o.Clients, 48), fallback(o.Functions, 8), fallback(o.Accounts, 200)
	o.Graphs, o.MaxNodes = fallback(o.Graphs, 3), fallback(o.MaxNodes, 20)
	o.Workers, o.Lease, o.StepTime = fallback(o.Workers, 3), fallback(o.Lease, 5*time.Second), fallback(o.StepTime, 2*time.Millisecond)
	o.Timeout, o.Warm = fallback(o.Timeout, time.Minute), fallback(o.Warm, 4*time.Second)
	o.Bound = fallback(o.Bound, 90*time.Second)
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// BackupReport is the outcome of all rounds.
type BackupReport struct {
	Rounds []BackupRound
	// Violations are of all rounds, each with its number.
	Violations []string
}

// BackupRound is one backup and its restore.
type BackupRound struct {
	Name, Fault, Hit, Resumed string
	// Killed is how often create was killed, Tries how often it ran.
	Killed, Tries int
	Bytes         int64
	// Create is of the create that made the backup, Verify and Restore of the commands.
	Create, Verify, Restore, Load time.Duration
	// Executions, Transfers and Graphs were restored, of All that were asked for; Unfinished are executions of the
	// restored ones that had not ended. Signals were delivered to the boxes, and Steps run in the restored cluster.
	Executions, Unfinished, Transfers, Graphs, Signals, Steps int
	All                                                       [3]int
}

// String is the report for people.
func (r *BackupReport) String() string {
	var b strings.Builder
	for i, t := range r.Rounds {
		fmt.Fprintf(&b, "round %d: %s", i+1, t.String())
	}
	return b.String()
}

// String is the report of one round.
func (t *BackupRound) String() string {
	text := fmt.Sprintf("backup %s, %d bytes: create %s (run %d times, killed %d), %s of %s; verify %s; restore %s\n",
		t.Name, t.Bytes, short3(t.Create), t.Tries, t.Killed, t.Fault, t.Hit, short3(t.Verify), short3(t.Restore))
	if t.Resumed != "" {
		text += fmt.Sprintf("  create continued %s\n", t.Resumed)
	}
	return text + fmt.Sprintf("  restored %d of %d executions (%d unfinished), %d of %d transfers, %d of %d graphs; load for %s; signals delivered %d; steps run after the restore %d\n",
		t.Executions, t.All[0], t.Unfinished, t.Transfers, t.All[1], t.Graphs, t.All[2], short3(t.Load), t.Signals, t.Steps)
}

// backupRound is a round in progress.
type backupRound struct {
	o      BackupOptions
	c      *Cluster // the one that is backed up
	number int
	rng    *rand.Rand
	load   *backupLoad
	cut    time.Duration
	report BackupRound
	wrong  []string
}

// Backups backs up a cluster under load while its nodes are killed, restores each backup into a new cluster of twice the
// partitions, has workers finish all that was unfinished, and checks the result by what clients were told before the
// backup began. An error means that the run could not be made. The program has to call BeWorker.
func Backups(ctx context.Context, c *Cluster, o BackupOptions) (*BackupReport, error) {
	o.fill()
	if missing := o.Workers - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, o.Lease); err != nil {
			return nil, err
		}
	}
	if _, err := c.cli(ctx); err != nil {
		return nil, err
	}
	report := &BackupReport{}
	for i := range o.Rounds {
		r := &backupRound{o: o, c: c, number: i + 1, rng: rand.New(rand.NewPCG(o.Seed, 30+uint64(i)))}
		err := r.run(ctx)
		report.Rounds = append(report.Rounds, r.report)
		for _, v := range r.wrong {
			report.Violations = append(report.Violations, fmt.Sprintf("round %d: %s", i+1, v))
		}
		if err != nil {
			return report, fmt.Errorf("round %d: %w", i+1, err)
		}
		fmt.Fprintf(o.Out, "%d of %d, %d violations: %s", i+1, o.Rounds, len(r.wrong), r.report.String())
		for _, v := range r.wrong {
			first, _, _ := strings.Cut(v, "\n")
			fmt.Fprintf(o.Out, "  %s\n", first)
		}
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// run makes one round.
func (r *backupRound) run(ctx context.Context) error {
	if err := r.c.waitLevel(ctx); err != nil {
		return err
	}
	var err error
	if r.load, err = newBackupLoad(ctx, r.c, r.o, fmt.Sprintf("b%x-%d", r.o.Seed, r.number)); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	wait, err := r.load.start(running)
	if err == nil {
		err = r.backUp(ctx)
	}
	stop()
	wait()
	if err != nil {
		return err
	}
	r.report.Load = r.load.now()
	return r.restore(ctx)
}

// store is where all backups are.
func (r *backupRound) store() string { return fallback(r.o.Store, filepath.Join(r.c.dir, "backups")) }

// backUp makes a backup at a random moment, under a fault, and verifies it.
func (r *backupRound) backUp(ctx context.Context) error {
	if err := pause(ctx, r.o.Warm+time.Duration(r.rng.Int64N(int64(r.o.Warm)))); err != nil {
		return err
	}
	fault := r.o.Faults[(r.number-1)%len(r.o.Faults)]
	when, seed := time.Duration(r.rng.Int64N(int64(1500*time.Millisecond))), r.rng.Uint64()
	injected := make(chan error, 1)
	go func() { injected <- r.hurt(ctx, fault, when, rand.New(rand.NewPCG(seed, 1))) }()
	err := r.create(ctx)
	if err = errors.Join(err, <-injected); err != nil {
		return err
	}
	began := time.Now()
	out := r.c.verify(ctx, "of the backup", []string{"verify", "--backup", r.store(), r.report.Name})
	r.report.Verify = time.Since(began)
	r.wrong = append(r.wrong, out...)
	return nil
}

// hurt breaks the cluster in the midst of a create, and repairs it.
func (r *backupRound) hurt(ctx context.Context, f Fault, when time.Duration, rng *rand.Rand) error {
	w, err := underFault(ctx, r.c, f, when, r.o.Hold, 0, rng, nil)
	if err != nil {
		return err
	}
	r.report.Fault, r.report.Hit = f.Name, w.Names()
	return nil
}

// created is what create prints.
type created struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Resumed string `json:"resumed"`
}

// createTries bounds how often create is run again while it says that it may.
const createTries = 6

// exitUnavailable is the exit code of a command that may be run again.
const exitUnavailable = 5

// create runs "backup create" until there is a backup. With KillCreate the first run is killed, at a random moment.
func (r *backupRound) create(ctx context.Context) error {
	args := r.c.addressed("--json", "backup", "create", r.store(), "--rate", r.o.Rate)
	first := r.load.now()
	for r.report.Tries < createTries {
		r.report.Tries++
		began := r.load.now()
		run, cancel := context.WithTimeout(ctx, verifyTimeout)
		if r.o.KillCreate && r.report.Killed == 0 {
			run, cancel = context.WithTimeout(ctx, 50*time.Millisecond+time.Duration(r.rng.Int64N(int64(3*time.Second))))
		}
		cmd := exec.CommandContext(run, r.c.opts.CLI, args...) // it is killed when run ends
		ownGroup(cmd)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := spawn(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		killed := run.Err() != nil
		cancel()
		failed := new(exec.ExitError)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return r.made(stdout.Bytes(), first, began)
		case killed && r.o.KillCreate && r.report.Killed == 0:
			r.report.Killed++
		case errors.As(err, &failed) && failed.ExitCode() == exitUnavailable:
			fmt.Fprintf(r.o.Out, "create is unavailable, and runs again: %s\n", strings.TrimSpace(stderr.String()))
		default:
			return fmt.Errorf("backup create: %w: %s", err, strings.TrimSpace(stderr.String()))
		}
	}
	r.wrong = append(r.wrong, fmt.Sprintf("create made no backup in %d runs", createTries))
	return errors.New("there is no backup to restore")
}

// made notes a backup. One that continues an earlier create may have its cut.
func (r *backupRound) made(printed []byte, first, began time.Duration) error {
	var c created
	if err := json.Unmarshal(printed, &c); err != nil {
		return fmt.Errorf("backup create printed %q: %w", printed, err)
	}
	r.report.Name, r.report.Bytes, r.report.Resumed, r.report.Create = c.Name, c.Bytes, c.Resumed, r.load.now()-began
	if r.cut = began; c.Resumed != "" {
		r.cut = first
	}
	return nil
}

// restore restores the backup into a new cluster, and has it checked there.
func (r *backupRound) restore(ctx context.Context) error {
	o := r.c.opts
	o.Partitions *= 2
	o.Seed += uint64(r.number)
	o.Dir = filepath.Join(r.c.dir, fmt.Sprintf("restored-%d", r.number))
	c, err := Start(ctx, o)
	if err != nil {
		return err
	}
	err = r.restoreTo(ctx, c)
	if err != nil {
		r.wrong = append(r.wrong, Evidence(c)...)
	}
	err = errors.Join(err, c.Close())
	if !o.Keep {
		err = errors.Join(err, os.RemoveAll(o.Dir))
	}
	return err
}

func (r *backupRound) restoreTo(ctx context.Context, c *Cluster) error {
	ready, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := c.WaitReady(ready); err != nil {
		return err
	}
	if err := c.waitLevel(ctx); err != nil {
		return err
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	out, err := exec.CommandContext(within, c.opts.CLI, c.addressed("backup", "restore", r.store(), r.report.Name)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("backup restore %s: %w: %s", r.report.Name, err, strings.TrimSpace(string(out)))
	}
	r.report.Restore = time.Since(began)
	r.wrong = append(r.wrong, c.verify(ctx, "of the restored cluster, before any worker", c.addressed("verify"))...)
	return r.judge(ctx, c)
}
