package role

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"perdure/bench/baseline"
	"perdure/bench/workload"
)

// StartRaft starts a bare Raft server. All servers of a baseline are started before Leads is asked of one.
func StartRaft(binary, dir string, cfg baseline.Config) (*Process, error) {
	return start(binary, dir, raftRole, cfg)
}

// Leads waits until the servers have a leader, and reports whether it is this one.
func (p *Process) Leads(ctx context.Context) (bool, error) {
	a, err := p.next(ctx)
	return a.Leads, err
}

// Go lets the leader run its load. The result follows: see Result.
func (p *Process) Go() error { return p.enc.Encode(struct{}{}) }

// beRaft serves until stdin is closed.
func beRaft(ctx context.Context, cancel context.CancelCauseFunc, in *json.Decoder, out *answers) error {
	var cfg baseline.Config
	if err := in.Decode(&cfg); err != nil {
		return err
	}
	s, err := baseline.Open(cfg)
	if err != nil {
		return err
	}
	return errors.Join(serveRaft(ctx, cancel, s, in, out), s.Close())
}

func serveRaft(ctx context.Context, cancel context.CancelCauseFunc, s *baseline.Server, in *json.Decoder, out *answers) error {
	leads, err := s.WaitLeader(ctx)
	if err != nil {
		return err
	}
	if err := out.send(answer{Ready: true, Leads: leads}); err != nil {
		return err
	}
	var asked json.RawMessage
	if err := in.Decode(&asked); errors.Is(err, io.EOF) {
		return nil // the caller lets another one run
	} else if err != nil {
		return err
	}
	go untilClosed(in, cancel)
	var lost error
	mark := func(m workload.Mark) func() {
		return func() { lost = errors.Join(lost, out.send(answer{Mark: m})) }
	}
	r, err := s.Run(ctx, mark(workload.Begin), mark(workload.End))
	if err = errors.Join(err, lost); err != nil {
		return err
	}
	data, err := encodeResult(&workload.Result{Result: r, Units: 1})
	if err != nil {
		return err
	}
	if err := out.send(answer{Result: data}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
