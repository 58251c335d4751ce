package jepsen

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/client"
	"perdure/durable"
)

// VersionOptions say what two versions of a function are to do. The zero value is 1,000 executions of each under
// VersionFaults.
type VersionOptions struct {
	// N executions begin while only workers of the first version are there, and at least as many when those
	// of the second have come. Clients is how many are started or signalled at a time.
	N, Clients int
	// Workers is the number of workers of each version. Lease, Timeout, Faults, Rounds, Warm, Hold and Cool are as with
	// Executions.
	Workers          int
	Lease, Timeout   time.Duration
	Faults           []Fault
	Rounds           int
	Warm, Hold, Cool time.Duration
	Prefix           string
	Seed             uint64
	Out              io.Writer
}

func (o *VersionOptions) fill() {
	o.N, o.Clients = fallback(o.N, 1000), fallback(o.Clients, 32)
	o.Workers, o.Lease, o.Timeout = fallback(o.Workers, 2), fallback(o.Lease, 5*time.Second), fallback(o.Timeout, 2*time.Minute)
	if len(o.Faults) == 0 {
		o.Faults, _ = FindFaults(VersionFaults)
	}
	o.Rounds = fallback(o.Rounds, len(o.Faults))
	o.Warm, o.Hold, o.Cool = fallback(o.Warm, time.Second), fallback(o.Hold, 4*time.Second), fallback(o.Cool, time.Second)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("version-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// VersionFaults kill workers of both versions, and nodes.
const VersionFaults = "kill-worker,kill-leader,kill-worker,pause-worker,kill-all"

// VersionReport is the outcome of a run with two versions.
type VersionReport struct {
	// Old began on the first version, New after the second had come.
	Old, New   int
	Took       time.Duration
	Faults     []string
	Violations []string
}

// String is the report for people.
func (r *VersionReport) String() string {
	return fmt.Sprintf("%d executions on the first version, %d on the second, in %s\nfaults: %s\n", r.Old, r.New, r.Took.Round(time.Millisecond), strings.Join(r.Faults, ", "))
}

const (
	firstVersion, secondVersion = "version-1", "version-2"
	versionName, versionChild   = "jepsen-version", "jepsen-version-child"
)

// versionFunctions are one version of a function and of its child: their steps have other names in each version, so no
// version can continue a journal of the other.
func versionFunctions(digest string) []durable.Registration {
	step := func(ctx durable.Context, name string) (string, error) {
		return durable.Run(ctx, name+" of "+digest, func(context.Context) (string, error) { return digest, nil })
	}
	child := durable.NewFunction(versionChild, func(ctx durable.Context, _ int) (string, error) { return step(ctx, "only") })
	return []durable.Registration{child, durable.NewFunction(versionName, func(ctx durable.Context, n int) ([]string, error) {
		var by []string
		for _, name := range []string{"first", "second", "third"} {
			who, err := step(ctx, name)
			if err != nil {
				return nil, err
			}
			by = append(by, who)
			switch name {
			case "first":
				if _, err := durable.WaitSignal[string](ctx, "go"); err != nil {
					return nil, err
				}
			case "second":
				who, err := durable.Call(ctx, child, n)
				if err != nil {
					return nil, err
				}
				by = append(by, who)
				if err := durable.Sleep(ctx, time.Duration(100+n%400)*time.Millisecond); err != nil {
					return nil, err
				}
			}
		}
		return by, nil
	})}
}

// versionRun is a run in progress.
type versionRun struct {
	o     VersionOptions
	ended atomic.Int64

	mu    sync.Mutex
	wrong []string
}

func (r *versionRun) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// Versions starts executions on one version of a function, then workers of another version beside the first,
// and starts executions on that, while workers and nodes are killed. Each execution must run on its version
// alone, from its first step to its last. An error means that the run could not be made.
func Versions(ctx context.Context, c *Cluster, o VersionOptions) (*VersionReport, error) {
	o.fill()
	r := &versionRun{o: o}
	began := time.Now()
	if err := c.waitLevel(ctx); err != nil {
		return nil, err
	}
	if err := c.startWorkers(ctx, o.Workers, 64, o.Lease, firstVersion); err != nil {
		return nil, err
	}
	cl, err := c.Client(o.Timeout)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	start := func(ctx context.Context, id string, n int) error {
		_, err := cl.Start(ctx, client.StartOptions{ID: id, Function: versionName, Input: []byte(fmt.Sprint(n))})
		return err
	}
	report := &VersionReport{Old: o.N}
	var starts []func(context.Context) error
	for n := range o.N {
		starts = append(starts, func(ctx context.Context) error { return start(ctx, r.id("old", n), n) })
	}
	if err := inParallel(ctx, o.Clients, starts); err != nil {
		return nil, err
	}
	if err := c.startWorkers(ctx, o.Workers, 64, o.Lease, secondVersion); err != nil {
		return nil, err
	}
	// Old executions are woken, and new ones started and woken, by clients throughout the faults.
	var clients sync.WaitGroup
	var next, over atomic.Int64
	order := rand.New(rand.NewPCG(o.Seed, 1)).Perm(o.N)
	for range o.Clients {
		clients.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= o.N && over.Load() > 0 {
					return
				}
				if n < o.N {
					r.run(ctx, cl, r.id("old", order[n]), firstVersion)
				}
				if id := r.id("new", n); r.started(ctx, start, id, n) {
					r.run(ctx, cl, id, secondVersion)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(o.Seed, 3))
	for i := 0; (i < o.Rounds || next.Load() < int64(o.N)) && err == nil; i++ {
		least := int(r.ended.Load()) + 2
		f := o.Faults[i%len(o.Faults)]
		var w *Wound
		w, err = underFault(ctx, c, f, o.Warm, f.holds(o.Hold, o.Lease, rng), o.Cool, rng,
			func() error { return fewer(int(r.ended.Load()), least, "executions") })
		if err == nil {
			fmt.Fprintf(o.Out, "fault %d: %s of %s, %d executions ended so far\n", i+1, w.Fault.Name, w.Names(), r.ended.Load())
			report.Faults = append(report.Faults, w.Fault.Name)
		}
	}
	over.Store(1)
	clients.Wait()
	report.Took = time.Since(began)
	if err != nil {
		return nil, err
	}
	report.New = int(next.Load()) - o.Clients
	for e, err := range cl.List(ctx, client.ListOptions{IDPrefix: o.Prefix, Problem: true}) {
		if err != nil {
			return nil, err
		}
		r.violation("%s: %s", e.GetId(), e.GetProblem())
	}
	report.Violations = append(r.wrong, Aftermath(ctx, c)...)
	return report, nil
}

func (r *versionRun) id(kind string, n int) string {
	return fmt.Sprintf("%s-%s-%d", r.o.Prefix, kind, n)
}

// started starts an execution; false is noted.
func (r *versionRun) started(ctx context.Context, start func(context.Context, string, int) error, id string, n int) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
	defer cancel()
	err := start(ctx, id, n)
	if err != nil {
		r.violation("%s was not started: %v", id, err)
	}
	return err == nil
}

// run wakes an execution, waits for its end and checks on which version it ran.
func (r *versionRun) run(ctx context.Context, cl *client.Client, id, version string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
	defer cancel()
	want := `["` + strings.Join([]string{version, version, version, version}, `","`) + `"]`
	err := cl.Signal(ctx, id, "go", []byte(`"go"`))
	var got []byte
	if err == nil {
		got, err = cl.Result(ctx, id)
	}
	e, describeErr := cl.Describe(ctx, id)
	switch {
	case err != nil:
		r.violation("%s did not end: %v; it is %v", id, err, e)
	case string(got) != want:
		r.violation("%s ran on %s, must run on %s", id, got, want)
	case describeErr != nil || e.GetComponentDigest() != version:
		r.violation("%s is pinned to %q (%v), must be to %q", id, e.GetComponentDigest(), describeErr, version)
	}
	r.ended.Add(1)
}
