package jepsen

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/client"
	"perdure/durable"
	"perdure/id"
)

// PayloadOptions describe the load. The zero value is 120 signals of 3.9 MB to one execution of another
// partition.
type PayloadOptions struct {
	// Signals of Bytes each are sent by Senders executions, each by itself one after the other. Defaults: 120 of
	// 3,900,000 bytes, by 12.
	Signals, Bytes, Senders int
	// Clients run three-step executions of 2 ms steps meanwhile, and for Calm before; defaults 8 and 10 s.
	Clients int
	Calm    time.Duration
	// Bound is when all have to have arrived; default 5 min.
	Bound time.Duration
	// MaxMemory bounds the resident memory of a node, in bytes; default 600 MB. MaxSlowdown is how many times the 99th
	// percentile of the small executions may be what it was before; default 5.
	MaxMemory   int64
	MaxSlowdown float64
	Seed        uint64
	Out         io.Writer
}

func (o *PayloadOptions) fill() {
	o.Signals, o.Bytes, o.Senders = fallback(o.Signals, 120), fallback(o.Bytes, 3_900_000), fallback(o.Senders, 12)
	o.Clients, o.Calm, o.Bound = fallback(o.Clients, 8), fallback(o.Calm, 10*time.Second), fallback(o.Bound, 5*time.Minute)
	o.MaxMemory, o.MaxSlowdown = fallback(o.MaxMemory, 600_000_000), fallback(o.MaxSlowdown, 5)
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// PayloadReport is the outcome.
type PayloadReport struct {
	Signals, Bytes int
	// Delivered is how many different signals are in the receiver's journal, Took from the first sender's
	// start until the last had arrived.
	Delivered int
	Took      time.Duration
	// Before and During are the small executions' latencies.
	Before, During Spread
	// Memory is the most that each node took, by name.
	Memory     map[string]int64
	Violations []string
}

const (
	payloadSender   = "jepsen-payload-sender"
	payloadReceiver = "jepsen-payload-receiver" // no worker serves it: signals are buffered
	payloadSignal   = "large"
)

type payloadInput struct {
	To           string
	First, Count int
	Bytes        int
	Seed         uint64
}

// payloadOf is the n-th payload: its number, the hash of the rest, and the rest, which does not compress.
func payloadOf(seed uint64, n, size int) string {
	key := sha256.Sum256(fmt.Appendf(nil, "%d %d", seed, n))
	raw := make([]byte, size*3/4)
	_, _ = rand.NewChaCha8(key).Read(raw) // it never fails
	rest := base64.RawStdEncoding.EncodeToString(raw)
	sum := sha256.Sum256([]byte(rest))
	return fmt.Sprintf("%d:%s:%s", n, hex.EncodeToString(sum[:]), rest)
}

// readPayload returns the number of a payload; an error means that it is none.
func readPayload(data []byte) (n int, err error) {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return 0, err
	}
	parts := strings.SplitN(text, ":", 3)
	if len(parts) != 3 {
		return 0, fmt.Errorf("%d bytes that are no payload", len(data))
	}
	if sum := sha256.Sum256([]byte(parts[2])); hex.EncodeToString(sum[:]) != parts[1] {
		return 0, fmt.Errorf("payload %s is not what was sent", parts[0])
	}
	return strconv.Atoi(parts[0])
}

// Payload sends large signals from executions of other partitions to one execution, while small executions
// run. An error means that the run could not be made.
func Payload(ctx context.Context, c *Cluster, o PayloadOptions) (*PayloadReport, error) {
	o.fill()
	r := &PayloadReport{Signals: o.Signals, Bytes: o.Bytes, Memory: map[string]int64{}}
	cl, err := c.Client(30 * time.Second)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var under sync.WaitGroup
	defer under.Wait()
	defer cancel()

	// The receiver; and the senders' worker.
	to := fmt.Sprintf("payload-%x-receiver", o.Seed)
	if _, err := cl.Start(ctx, client.StartOptions{ID: to, Function: payloadReceiver, AllowUnknownFunction: true}); err != nil {
		return nil, err
	}
	send := durable.NewFunction(payloadSender, func(ctx durable.Context, in payloadInput) (int, error) {
		for k := range in.Count {
			if err := durable.Signal(ctx, in.To, payloadSignal, payloadOf(in.Seed, in.First+k, in.Bytes)); err != nil {
				return k, err
			}
		}
		return in.Count, nil
	})
	worker := durable.NewWorker(cl, durable.WorkerOptions{Name: "sender", Concurrency: o.Senders, StopGrace: time.Second})
	worker.Register(send)
	under.Go(func() { _ = worker.Run(ctx) }) // it ends with the run
	if err := c.StartWorkers(ctx, 1, 64, 5*time.Second); err != nil {
		return nil, err
	}

	// Small executions, and what the nodes take.
	small := &smallLoad{prefix: fmt.Sprintf("payload-%x-small", o.Seed)}
	if err := small.run(ctx, c, o.Clients, &under); err != nil {
		return nil, err
	}
	memory := &memoryWatch{}
	under.Go(func() { memory.run(ctx, c) })
	if err := pause(ctx, o.Calm/4); err != nil { // until all have been warmed up
		return nil, err
	}
	small.take()
	if err := pause(ctx, o.Calm); err != nil {
		return nil, err
	}
	r.Before = SpreadOf(small.take())
	fmt.Fprintf(o.Out, "before: small executions %s; %s\n", r.Before, memory)

	// The senders, each in another partition than the receiver.
	began := time.Now()
	slot := func(name string) int {
		return int(uint64(id.Slot(client.DefaultNamespace, name)) * uint64(c.opts.Partitions) / uint64(id.Slots))
	}
	for k, n := 0, 0; k < o.Senders; n++ {
		from := fmt.Sprintf("payload-%x-sender-%d", o.Seed, n)
		if slot(from) == slot(to) && c.opts.Partitions > 1 {
			continue
		}
		first := o.Signals * k / o.Senders
		count := o.Signals*(k+1)/o.Senders - first
		k++
		if count == 0 {
			continue
		}
		if _, err := send.Start(ctx, cl, from, payloadInput{To: to, First: first, Count: count, Bytes: o.Bytes, Seed: o.Seed}); err != nil {
			r.Violations = append(r.Violations, fmt.Sprintf("sender %s was not started: %v", from, err))
		}
	}
	r.wait(ctx, cl, to, began, o, memory)
	r.During = SpreadOf(small.take())
	lost := small.failed.Load()
	cancel()
	under.Wait()
	r.Memory = memory.most()
	r.check(o, lost)
	if r.Delivered == o.Signals {
		r.Violations = append(r.Violations, r.read(context.WithoutCancel(ctx), c, to)...)
		r.Violations = append(r.Violations, Aftermath(context.WithoutCancel(ctx), c)...)
	}
	return r, nil
}

// wait follows the receiver until all has arrived, or the time is up.
func (r *PayloadReport) wait(ctx context.Context, cl *client.Client, to string, began time.Time, o PayloadOptions, memory *memoryWatch) {
	shown := began
	for time.Since(began) < o.Bound {
		asked, cancel := context.WithTimeout(ctx, 10*time.Second)
		e, err := cl.Describe(asked, to)
		cancel()
		if err == nil {
			// ExecutionStarted, then nothing but deliveries.
			r.Delivered, r.Took = int(e.JournalEvents)-1, time.Since(began)
			if r.Delivered >= o.Signals {
				return
			}
		}
		if time.Since(shown) > 10*time.Second {
			shown = time.Now()
			fmt.Fprintf(o.Out, "%s: %d of %d delivered; %s\n", short3(time.Since(began)), r.Delivered, o.Signals, memory)
		}
		if pause(ctx, 250*time.Millisecond) != nil {
			return
		}
	}
}

func (r *PayloadReport) check(o PayloadOptions, failed int64) {
	bad := func(format string, args ...any) { r.Violations = append(r.Violations, fmt.Sprintf(format, args...)) }
	if r.Delivered != o.Signals {
		bad("%d of %d signals were delivered within %s", r.Delivered, o.Signals, o.Bound)
	}
	for name, most := range r.Memory {
		if most > o.MaxMemory {
			bad("%s took %d MB, at most %d are allowed", name, most/1_000_000, o.MaxMemory/1_000_000)
		}
	}
	if during, before := r.During.P99, r.Before.P99; r.During.N == 0 || float64(during) > o.MaxSlowdown*float64(before) {
		bad("small executions: p99 %s (%d of them), before %s; at most %.0f times that is allowed", short3(during), r.During.N, short3(before), o.MaxSlowdown)
	}
	if failed > 0 {
		bad("%d small executions failed", failed)
	}
}

// read checks every payload that the receiver's journal holds.
func (r *PayloadReport) read(ctx context.Context, c *Cluster, to string) (violations []string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cl, err := c.Client(time.Minute)
	if err != nil {
		return []string{err.Error()}
	}
	defer cl.Close()
	seen := map[int]int{}
	for entry, err := range cl.Journal(ctx, to) {
		if err != nil {
			return append(violations, fmt.Sprintf("reading the receiver's journal: %v", err))
		}
		if s := entry.GetEvent().GetSignalDelivered(); s != nil {
			n, err := readPayload(s.GetPayload().GetValue())
			if err != nil {
				violations = append(violations, fmt.Sprintf("delivery %d: %v", s.GetDeliveryId(), err))
			}
			if seen[n]++; seen[n] > 1 {
				violations = append(violations, fmt.Sprintf("signal %d was delivered twice", n))
			}
		}
	}
	if len(seen) != r.Signals {
		violations = append(violations, fmt.Sprintf("%d different signals are in the journal, not %d", len(seen), r.Signals))
	}
	return violations
}

// String is the summary.
func (r *PayloadReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d signals of %d bytes delivered in %s\n", r.Delivered, r.Signals, r.Bytes, short3(r.Took))
	fmt.Fprintf(&b, "  small executions before: %d, %s\n  meanwhile: %d, %s\n", r.Before.N, r.Before, r.During.N, r.During)
	fmt.Fprintf(&b, "  most memory of each node:%s\n", memoryText(r.Memory))
	return b.String()
}

// smallLoad runs three-step executions, each client one after the other.
type smallLoad struct {
	prefix string
	made   atomic.Int64
	failed atomic.Int64

	mu   sync.Mutex
	took []time.Duration
}

func (l *smallLoad) run(ctx context.Context, c *Cluster, clients int, under *sync.WaitGroup) error {
	fn := stepFunction(nil) // to be started only: workers have their own
	for range clients {
		cl, err := c.Client(time.Minute)
		if err != nil {
			return err
		}
		under.Go(func() {
			defer cl.Close()
			for ctx.Err() == nil {
				name := fmt.Sprintf("%s-%d", l.prefix, l.made.Add(1))
				began := time.Now()
				h, err := fn.Start(ctx, cl, name, stepsInput{ID: name, Micros: 2000})
				if err == nil {
					_, err = h.Result(ctx)
				}
				if err != nil {
					if ctx.Err() == nil {
						l.failed.Add(1)
					}
					continue
				}
				l.mu.Lock()
				l.took = append(l.took, time.Since(began))
				l.mu.Unlock()
			}
		})
	}
	return nil
}

// take returns the latencies since the last take.
func (l *smallLoad) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.took
	l.took = nil
	return out
}

// memoryWatch records the memory of each node's process.
type memoryWatch struct {
	mu       sync.Mutex
	now, top map[string]int64
}

func (m *memoryWatch) run(ctx context.Context, c *Cluster) {
	for pause(ctx, 200*time.Millisecond) == nil {
		m.sample(c)
	}
}

func (m *memoryWatch) sample(c *Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		m.now, m.top = map[string]int64{}, map[string]int64{}
	}
	for _, n := range c.nodes {
		if bytes, err := n.Resident(); err == nil {
			m.now[n.Name], m.top[n.Name] = bytes, max(m.top[n.Name], bytes)
		}
	}
}

func (m *memoryWatch) most() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int64{}
	for name, n := range m.top {
		out[name] = n
	}
	return out
}

// String lists their memory now.
func (m *memoryWatch) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "memory" + memoryText(m.now)
}

func memoryText(by map[string]int64) string {
	var b strings.Builder
	for i := 1; i <= len(by); i++ {
		name := "n" + strconv.Itoa(i)
		fmt.Fprintf(&b, " %s %d MB", name, by[name]/1_000_000)
	}
	return b.String()
}

// Resident is how much memory the process takes, in bytes (Linux).
func (p *process) Resident() (int64, error) {
	p.mu.Lock()
	running, pid := p.running(), 0
	if running {
		pid = p.cmd.Process.Pid
	}
	p.mu.Unlock()
	if !running {
		return 0, errors.New("it does not run")
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm holds %q", pid, data)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
