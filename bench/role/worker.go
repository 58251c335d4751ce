package role

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"

	"perdure/bench/sdk"
	"perdure/bench/workload"
	"perdure/client"
	"perdure/durable"
)

// StartWorker starts a worker for a job and waits until it gets tasks.
func StartWorker(ctx context.Context, binary, dir string, job workload.Job) (*Process, error) {
	p, err := startJob(binary, dir, workerRole, job)
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
	work, err := workload.Find(job.Workload)
	if err != nil {
		return err
	}
	if work[0].SDK {
		return serveSDK(ctx, job, out)
	}
	c, err := client.Dial(client.Options{Addrs: job.Addrs, Namespace: job.Namespace, Logger: quiet()})
	if err != nil {
		return err
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

// serveSDK serves the functions of Resonate's SDK until stdin is closed.
func serveSDK(ctx context.Context, job workload.Job, out *answers) error {
	p, err := sdk.Start(ctx, job.SDK, sdk.Worker, job.URLs)
	if err != nil {
		return err
	}
	if err := out.send(answer{Ready: true}); err != nil {
		return errors.Join(err, p.Close())
	}
	select {
	case <-ctx.Done():
		return p.Close()
	case <-p.Done():
		return errors.Join(errors.New("the SDK's worker has ended"), p.Close())
	}
}

// quiet logs what is wrong.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
