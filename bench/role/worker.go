package role

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"

	"perdure/bench/workload"
	"perdure/client"
	"perdure/durable"
)

// StartWorker starts a worker for a job and waits until it gets tasks.
func StartWorker(ctx context.Context, binary, dir string, job workload.Job) (*Process, error) {
	p, err := start(binary, dir, workerRole, job)
	if err != nil {
		return nil, err
	}
	if err := p.ready(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// beWorker serves all workloads until stdin is closed.
func beWorker(ctx context.Context, cancel context.CancelCauseFunc, in *json.Decoder, out *answers) error {
	var job workload.Job
	if err := in.Decode(&job); err != nil {
		return err
	}
	go untilClosed(in, cancel)
	c, err := client.Dial(client.Options{Addrs: job.Addrs, Namespace: job.Namespace, Logger: quiet()})
	if err != nil {
		return err
	}
	work, err := workload.Find(job.Workload)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	w := durable.NewWorker(c, durable.WorkerOptions{Name: "bench", Lease: job.Lease, Concurrency: work[0].Tasks(job.Load.Concurrency), Logger: quiet()})
	workload.Register(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-w.Ready():
		err = out.send(answer{Ready: true})
		if err != nil {
			cancel(err)
		}
		err = errors.Join(err, <-ended)
	case err = <-ended:
	}
	return errors.Join(err, c.Close())
}

// quiet logs what is wrong.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
