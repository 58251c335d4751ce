package role

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"perdure/bench/load"
	"perdure/bench/workload"
	"perdure/client"
)

// callTimeout bounds one call of a client: longer than an election, shorter than the drain of a load.
const callTimeout = 50 * time.Second

// StartClient starts the client of a job.
func StartClient(binary, dir string, job workload.Job) (*Process, error) {
	return startJob(binary, dir, clientRole, job)
}

// Begun waits until a client's window has begun.
func (p *Process) Begun(ctx context.Context) error {
	a, err := p.next(ctx)
	if err == nil && a.Mark != workload.Begin {
		err = fmt.Errorf("unexpected answer %+v", a)
	}
	return err
}

// Result waits for the result of a client. mark is called at the job's instants, while the job runs on.
func (p *Process) Result(ctx context.Context, mark func(workload.Mark) error) (*workload.Result, error) {
	for {
		a, err := p.next(ctx)
		switch {
		case err != nil:
			return nil, err
		case a.Result != nil:
			return decodeResult(a.Result)
		case mark != nil:
			if err := mark(a.Mark); err != nil {
				return nil, err
			}
		}
	}
}

// beClient runs one job.
func beClient(ctx context.Context, cancel context.CancelCauseFunc, in *json.Decoder, out *answers) error {
	var job workload.Job
	if err := in.Decode(&job); err != nil {
		return err
	}
	go untilClosed(in, cancel)
	clients, err := dialEach(job.Addrs, job.Namespace)
	if err != nil {
		return err
	}
	var lost error
	r, err := workload.Run(ctx, job, clients, func(m workload.Mark) { lost = errors.Join(lost, out.send(answer{Mark: m})) })
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	if err = errors.Join(err, lost); err != nil {
		return err
	}
	data, err := encodeResult(r)
	if err != nil {
		return err
	}
	if err := out.send(answer{Result: data}); err != nil {
		return err
	}
	<-ctx.Done() // the caller reads what the process has used, and closes stdin
	return nil
}

// dialEach makes a client for each address, which begins there and knows the others.
func dialEach(addrs []string, namespace string) ([]*client.Client, error) {
	var out []*client.Client
	for i := range addrs {
		c, err := client.Dial(client.Options{Addrs: append(append([]string{}, addrs[i:]...), addrs[:i]...), Timeout: callTimeout,
			Namespace: namespace, Logger: quiet(), Rand: &firstZero{}})
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// resultForm is a result on its way between processes.
type resultForm struct {
	load.Result
	Latency []byte
	Units   int
	Extra   map[string]float64
}

func encodeResult(r *workload.Result) (json.RawMessage, error) {
	h, err := r.Latency.EncodeV2()
	if err != nil {
		return nil, err
	}
	f := resultForm{Result: *r.Result, Latency: h, Units: r.Units, Extra: r.Extra}
	f.Result.Latency = nil
	return json.Marshal(f)
}

func decodeResult(data []byte) (*workload.Result, error) {
	var f resultForm
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	h, err := hdrhistogram.Decode(f.Latency)
	if err != nil {
		return nil, fmt.Errorf("latencies: %w", err)
	}
	out := &workload.Result{Result: &f.Result, Units: f.Units, Extra: f.Extra}
	out.Latency = h
	return out, nil
}

// firstZero is a source of random bytes whose first ones are zero. A client draws from the first ones at which of its
// addresses it begins, and zero is the first: so the clients of a job begin at different nodes in every run.
type firstZero struct{ drawn atomic.Bool }

// Read implements io.Reader.
func (z *firstZero) Read(b []byte) (int, error) {
	if !z.drawn.Swap(true) {
		clear(b)
		return len(b), nil
	}
	return rand.Read(b)
}
