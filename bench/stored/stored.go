// Package stored fills the data directory of a node with executions that have ended or that sleep, so that a node can be
// measured that has served for long.
//
// It runs the partitions of a node in this process, without its ports: every execution is started, assigned to a
// worker and ended, or put to sleep, by commands in the node's own log, as a node does it. The directory must not be in use. An error
// leaves it as a crash would: sound, with fewer executions.
//
//	err := stored.Fill(ctx, stored.Job{Dir: dir, NodeID: "n1", Prefix: "stored", To: 3_000_000})
package stored

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition"
	"perdure/partition/admission"
	"perdure/partition/workers"
)

// Job says what to fill.
type Job struct {
	// Dir is the data directory, made if it is missing, and NodeID its node. PeerAddr is free while Fill runs.
	Dir, NodeID, PeerAddr string
	// Partitions is the number of a new directory; 0 for one that exists.
	Partitions int
	// Prefix begins the ids, a number from From to before To ends them.
	Prefix   string
	From, To int64
	// Payload is the size of each input and result, unless the executions sleep.
	Payload int
	// Sleeper, if set, is the function of executions that sleep. Its input is when it wakes: Due.
	Sleeper string
	// First is when the first one wakes, Spread the time over which all do.
	First  time.Time
	Spread time.Duration
}

// Due is when sleeper n wakes.
func (j *Job) Due(n int64) time.Time {
	return j.First.Add(j.Spread * time.Duration(n) / time.Duration(j.To))
}

const (
	namespace = "default"
	finished  = "bench-stored" // the function of those that end
	// underWay is how many executions run at once: entries of several partitions stay full.
	underWay = 2048
	// steps are the recorded steps of an execution, as many as the workload steps has.
	steps = 3
	lease = time.Hour
)

// Fill makes executions. It blocks until all are stored and the directory is closed.
func Fill(ctx context.Context, job Job) (err error) {
	n, err := partition.Start(partition.Config{
		DataDir: job.Dir, NodeID: job.NodeID, PeerAddr: job.PeerAddr, Advertise: job.PeerAddr, NewPartitions: uint32(job.Partitions), LogStore: "pebble",
		HeartbeatTimeout: 100 * time.Millisecond, ElectionTimeout: 100 * time.Millisecond, LeaderLease: 50 * time.Millisecond,
		CommitTimeout: 500 * time.Millisecond, MaxAppendEntries: 256, SnapshotThreshold: 8192, SnapshotInterval: 30 * time.Second, TrailingLogs: 8192,
		SnapshotBytes: 64 << 20, TrailingBytes: 64 << 20, CacheBytes: 128 << 20, MemtableBytes: 64 << 20,
		MaxPendingCommands: 2 * underWay, PendingBytes: admission.DefaultLimits,
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, n.Close(closing))
	}()
	select {
	case <-n.Ready():
	case <-n.Done():
		return n.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f := &filler{job: job, router: n.Router(), function: finished, text: []byte(strconv.Quote(strings.Repeat("x", max(job.Payload-2, 0))))}
	if job.Sleeper != "" {
		f.function = job.Sleeper
	}
	f.worker = n.Dispatcher().Attach(workers.Spec{ID: "filler", Namespace: namespace, Functions: []string{f.function}, LeaseMS: lease.Milliseconds(), Capacity: underWay})
	defer f.worker.Detach()
	return f.run(ctx)
}

// filler starts executions, and commits for those that become its tasks.
type filler struct {
	job      Job
	function string
	router   *partition.Router
	worker   *workers.Worker
	text     []byte

	mu   sync.Mutex
	next int64
	err  error
}

// run blocks until all executions have ended or sleep.
func (f *filler) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	f.next = f.job.From
	room, ended := make(chan struct{}, underWay), make(chan struct{})
	running.Go(func() { // each delivery is a task
		for {
			d, ok := f.worker.Next(ctx)
			if !ok {
				return
			}
			running.Go(func() {
				if f.failed(f.commit(ctx, d.Token)) {
					cancel()
					return
				}
				f.worker.Heard(0) // a worker that sends nothing gets no tasks
				f.worker.Finished(d.Token)
				f.worker.AddCapacity(1)
				select {
				case ended <- struct{}{}:
				case <-ctx.Done():
				}
			})
		}
	})
	for range underWay / 4 {
		running.Go(func() {
			for n, ok := f.take(); ok; n, ok = f.take() {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					return
				}
				if f.failed(f.start(ctx, n)) {
					cancel()
					return
				}
			}
		})
	}
	for range f.job.To - f.job.From {
		select {
		case <-ended:
			<-room
		case <-ctx.Done():
			return f.why(ctx)
		}
	}
	return nil
}

func (f *filler) take() (n int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = f.next
	f.next++
	return n, n < f.job.To
}

// failed notes the first error.
func (f *filler) failed(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	return err != nil
}

func (f *filler) why(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	return context.Cause(ctx)
}

func (f *filler) start(ctx context.Context, n int64) error {
	id, input := fmt.Sprintf("%s-%d", f.job.Prefix, n), f.text
	if f.job.Sleeper != "" {
		var err error
		if input, err = json.Marshal(f.job.Due(n)); err != nil {
			return err
		}
	}
	_, err := f.router.Propose(ctx, &commandv1.Command{Namespace: namespace, Id: id, Request: &perdurev1.RequestID{Id: []byte("start-" + id)},
		Kind: &commandv1.Command_Start{Start: &perdurev1.StartRequest{Namespace: namespace, Id: id, Function: f.function, Input: input, AllowUnknownFunction: true}}})
	if err != nil {
		return fmt.Errorf("starting %s: %w", id, err)
	}
	return nil
}

// commit records what the function of a task does: all its steps and its result, or that it sleeps.
func (f *filler) commit(ctx context.Context, task *perdurev1.TaskToken) error {
	c := &perdurev1.Commit{Task: task, KnownSeq: 1}
	if f.job.Sleeper != "" {
		n, err := strconv.ParseInt(task.Id[len(f.job.Prefix)+1:], 10, 64)
		if err != nil {
			return err
		}
		timer := task.Id + ":0"
		// Rounded up, and one more: the time of the entry from which it counts is rounded down.
		c.Events = []*perdurev1.Event{
			{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: timer, DurationMs: max(1, time.Until(f.job.Due(n)).Milliseconds()+2)}}},
			{Kind: &perdurev1.Event_ExecutionAwaiting{ExecutionAwaiting: &perdurev1.ExecutionAwaiting{WaitingOn: []string{timer}, Kind: perdurev1.AwaitKind_AWAIT_KIND_SINGLE}}},
		}
	} else {
		c.Events = f.steps(task.Id)
	}
	_, err := f.router.Propose(ctx, &commandv1.Command{Namespace: namespace, Id: task.Id, Request: &perdurev1.RequestID{Id: []byte("commit-" + task.Id)},
		Kind: &commandv1.Command_Commit{Commit: c}})
	if err != nil {
		return fmt.Errorf("committing for %s: %w", task.Id, err)
	}
	return nil
}

// steps are the events of an execution from its first step to its end.
func (f *filler) steps(id string) (events []*perdurev1.Event) {
	for n := range steps {
		promise := fmt.Sprintf("%s:%d", id, n)
		events = append(events,
			&perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
				PromiseId: promise, Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: "step"}}},
			&perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: promise, Attempt: 1}}},
			&perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: promise, Attempt: 1,
				Result: &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: f.text}}}}})
	}
	return append(events, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: f.text}}})
}
