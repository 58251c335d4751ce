// Package workload holds what the benchmark makes a cluster do: one file for each workload, with the functions that a
// worker runs and the operations that a client counts.
//
// It promises that a figure is of work that was done: each operation checks its result, and at the end each workload
// compares the cluster's state with the number of operations that began. A workload knows a cluster from outside only,
// by its client and worker libraries, by requests of Resonate's protocol and by Resonate's SDK.
//
// The worker's process and the client's process both know all workloads:
//
//	workload.Register(worker)                               // the worker: functions and entities of all
//	result, err := workload.Run(ctx, job, clients, mark)    // the client: one job
package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/bench/load"
	"perdure/client"
	"perdure/durable"
)

// Job is one run of one workload.
type Job struct {
	Workload string   `json:"workload"`
	Addrs    []string `json:"addrs"`
	// URLs are the nodes' HTTP ports. SDK is the folder of Resonate's SDK; empty if it is not installed.
	URLs []string `json:"urls,omitempty"`
	SDK  string   `json:"sdk,omitempty"`
	// Namespace is that of all that the job makes; the default one if empty.
	Namespace string `json:"namespace,omitempty"`
	// Prefix begins the ids of everything that the job makes; no two jobs of a cluster have the same.
	Prefix string `json:"prefix"`
	// Payload is how many bytes an input has.
	Payload int          `json:"payload"`
	Load    load.Options `json:"load"`
	// Spread is the time over which sleepers are due; 0 wakes all at one instant.
	Spread time.Duration `json:"spread,omitempty"`
	// Lead is the time from the first start of a sleeper until the first is due; 0 for one that their number gives.
	Lead time.Duration `json:"lead,omitempty"`
	// Lease is the worker's; its default if 0.
	Lease time.Duration `json:"lease,omitempty"`
	// First is when the first sleeper is due, if the sleepers are stored already; else the zero time.
	First time.Time `json:"first,omitzero"`
	// Yields runs the job's processes at the lowest priority: they take what time the others leave, as if on machines of their own.
	Yields bool `json:"-"`
}

// Mark names an instant of a job at which its caller reads the figures of processes.
type Mark string

// The window of every workload lies between Begin and End. Sleepers also mark an empty store, and that all are asleep.
const (
	Begin  Mark = "begin"
	End    Mark = "end"
	Empty  Mark = "empty"
	Asleep Mark = "asleep"
)

// Result is what a job measured.
type Result struct {
	*load.Result
	// Units is how many units of the workload one operation is.
	Units int
	// Extra are figures of this workload alone, by name.
	Extra map[string]float64
}

// Workload is one kind of work.
type Workload struct {
	// Letter and Name identify it; Title says in a line what one operation is.
	Letter, Name, Title string
	// Units is how many units one operation is, 1 if 0; Unit names one in the plural.
	Units int
	Unit  string
	// Counted says that a job of it has a number of operations instead of a duration.
	Counted bool
	// Killed says that a job of it survives the end of a leader: the caller kills one during the window.
	Killed bool
	// Large says that one operation takes seconds.
	Large bool
	// SDK says that worker and client run Resonate's SDK, which needs npm.
	SDK bool

	register []durable.Registration
	run      func(ctx context.Context, e *env) (*Result, error)
}

// Tasks is how many tasks a worker takes at once when so many operations are under way.
func (w *Workload) Tasks(underWay int) int {
	const ofLarge = 256 // of the tasks of one operation
	if w.Large {
		return max(ofLarge, 2*underWay)
	}
	return 2 * underWay
}

// All are the workloads, in order.
func All() []*Workload {
	return []*Workload{echo, steps, fanOut, signal, promise, increments, sleepers, failover, dag, largeGraph, appends, reads, staleReads,
		resonateRun, resonateSteps, resonateRPC, resonatePromise, bank}
}

// offending are the workloads of namespaces beyond their quotas, which run beside another one.
func offending() []*Workload { return []*Workload{overStarts, overBytes} }

// Find returns workloads by their names or letters; "all" is all that a cell can measure.
func Find(names string) ([]*Workload, error) {
	if names == "all" {
		return All(), nil
	}
	var out []*Workload
	known := append(All(), offending()...)
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(known, func(w *Workload) bool {
			return strings.EqualFold(w.Name, name) || w.Letter != "" && strings.EqualFold(w.Letter, name)
		})
		if i < 0 {
			return nil, fmt.Errorf("no workload is called %q", name)
		}
		out = append(out, known[i])
	}
	return out, nil
}

// Register gives a worker the functions and entities of all workloads.
func Register(w *durable.Worker) {
	seen := map[durable.Registration]bool{}
	for _, one := range append(All(), offending()...) {
		for _, r := range one.register {
			if !seen[r] {
				seen[r] = true
				w.Register(r)
			}
		}
	}
}

// Run runs a job. mark is called at its instants. It blocks until all operations have ended and the cluster's state was
// checked. An error means that the job could not be made or that a check has failed.
func Run(ctx context.Context, job Job, clients []*client.Client, mark func(Mark)) (*Result, error) {
	all, err := Find(job.Workload)
	if err != nil {
		return nil, err
	}
	w := all[0]
	e := &env{Job: job, clients: clients, mark: mark, text: strings.Repeat("x", job.Payload)}
	r, err := w.run(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name, err)
	}
	r.Units = max(w.Units, 1)
	return r, nil
}

// env is a job in progress.
type env struct {
	Job
	clients []*client.Client
	mark    func(Mark)
	text    string // the payload
}

// client returns the client of operation n.
func (e *env) client(n int64) *client.Client { return e.clients[n%int64(len(e.clients))] }

// id is the id of operation n.
func (e *env) id(n int64) string { return fmt.Sprintf("%s-%d", e.Prefix, n) }

// measure runs the job's load and marks its window. It fails if an operation has failed.
func (e *env) measure(ctx context.Context, op func(ctx context.Context, n int64) error) (*Result, error) {
	o := e.Load
	o.Began, o.Ended = func() { e.mark(Begin) }, func() { e.mark(End) }
	r, err := load.Run(ctx, o, op)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		return nil, err
	}
	return &Result{Result: r}, nil
}

// maxListed bounds the executions that a job reads back; a larger job relies on the results of its operations.
const maxListed = 20_000

// executions measures operations that run one execution each, and then counts them in the cluster: as many
// have completed as began.
func (e *env) executions(ctx context.Context, op func(ctx context.Context, n int64) error) (*Result, error) {
	r, err := e.measure(ctx, op)
	if err != nil || r.Begun > maxListed {
		return r, err
	}
	return r, e.completed(ctx, r.Begun)
}

// completed compares the number of completed executions in the cluster with those that began.
func (e *env) completed(ctx context.Context, begun int64) error {
	counts := map[client.Status]int64{}
	for x, err := range e.clients[0].List(ctx, client.ListOptions{IDPrefix: e.Prefix + "-", PageSize: 1000}) {
		if err != nil {
			return fmt.Errorf("listing executions: %w", err)
		}
		if !strings.ContainsAny(x.GetId()[len(e.Prefix):], ":.") { // no child
			counts[x.GetStatus()]++
		}
	}
	if got := counts[perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED]; got != begun || len(counts) > 1 {
		return fmt.Errorf("%d executions began, and the cluster has %v", begun, counts)
	}
	return nil
}

// unequal returns an error if an operation's result is not the expected one.
func unequal[T comparable](id string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s returned %v, not %v", id, short(got), short(want))
	}
	return nil
}

// short cuts a payload.
func short(v any) string {
	s := fmt.Sprint(v)
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}
