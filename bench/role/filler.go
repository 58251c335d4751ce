package role

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"

	"perdure/bench/stored"
)

// Fill has a process of its own fill a data directory, and blocks until it has. The process's log is beside the directory.
func Fill(ctx context.Context, binary string, job stored.Job) (err error) {
	p, err := start(binary, filepath.Dir(job.Dir), fillerRole, job)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.ready(ctx)
}

// beFiller fills one directory.
func beFiller(ctx context.Context, cancel context.CancelCauseFunc, in *json.Decoder, out *answers) error {
	var job stored.Job
	if err := in.Decode(&job); err != nil {
		return err
	}
	go untilClosed(in, cancel)
	if err := stored.Fill(ctx, job); err != nil {
		return err
	}
	if err := out.send(answer{Ready: true}); err != nil {
		return err
	}
	<-ctx.Done() // the caller closes stdin
	return nil
}
