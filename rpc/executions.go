package rpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/partition/group"
)

// writeTimeout bounds a write whose caller has set no deadline of its own.
const writeTimeout = 30 * time.Second

// maxWait bounds a long poll; clients poll again.
const maxWait = 60 * time.Second

type executions struct {
	perdurev1.UnimplementedExecutionsServer
	s *Server
}

func level(l perdurev1.ReadLevel) group.Level {
	if l == perdurev1.ReadLevel_READ_LEVEL_STALE {
		return group.Stale
	}
	return group.Linearizable
}

// propose puts a command into its partition's log, within a deadline.
func (s *Server) propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, writeTimeout)
		defer cancel()
	}
	return s.router.Propose(ctx, cmd)
}

// Start implements Executions.
func (e *executions) Start(ctx context.Context, in *perdurev1.StartRequest) (*perdurev1.StartResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, rootID(in.Id), startContent(in)); err != nil {
		return nil, err
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Start{Start: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetStart(), nil
}

// startContent checks a start without its id.
func startContent(in *perdurev1.StartRequest) error {
	return firstError(function(in.Function), payload("input", in.Input), tags(in.Tags), duration("timeout", in.TimeoutMs),
		text("component digest", in.ComponentDigest, maxDigestBytes), known("reuse", in.Reuse))
}

// Result implements Executions.
func (e *executions) Result(ctx context.Context, in *perdurev1.ResultRequest) (*perdurev1.ResultResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, anyID(in.Id), duration("wait", in.WaitMs)); err != nil {
		return nil, err
	}
	var out *perdurev1.ResultResponse
	err = e.s.await(ctx, ns, in.Id, in.WaitMs, func() (bool, error) {
		reply, index, err := e.s.router.Query(ctx, level(in.Level), &commandv1.Query{
			Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Result{Result: in}})
		if err != nil {
			return false, err
		}
		out = reply.GetResult()
		out.ReadIndex = index
		return out.Done, nil
	})
	return out, err
}

// await repeats a read until the object is done, the wait is over, or the caller is gone. It reads again when
// the promise of the id was settled, and at least every few seconds.
func (s *Server) await(ctx context.Context, ns, objectID string, waitMS int64, read func() (done bool, err error)) error {
	if waitMS == 0 {
		_, err := read()
		return err
	}
	over := time.NewTimer(min(time.Duration(waitMS)*time.Millisecond, maxWait))
	defer over.Stop()
	var pause time.Duration
	for {
		ended, err := s.awaitOnce(ctx, ns, objectID, over, read)
		if ended || err != nil {
			return err
		}
		// A wake-up without a result is rare, unless the reading replica lags behind the one that wakes.
		calm := time.NewTimer(pause)
		select {
		case <-calm.C:
		case <-over.C:
			calm.Stop()
			return nil
		case <-s.stopping:
			calm.Stop()
			return errStopping()
		case <-ctx.Done():
			calm.Stop()
			return ctx.Err()
		}
		pause = min(max(2*pause, time.Millisecond), 200*time.Millisecond)
	}
}

// awaitOnce is one round: watch, read, wait. A watch is bound to the leader at its start, so each round has
// its own.
func (s *Server) awaitOnce(ctx context.Context, ns, objectID string, over *time.Timer, read func() (done bool, err error)) (ended bool, err error) {
	const readAgain = 10 * time.Second
	watch := s.router.Watch(ns, objectID)
	defer watch.Stop()
	if done, err := read(); done || err != nil {
		return true, err
	}
	again := time.NewTimer(readAgain)
	defer again.Stop()
	select {
	case <-watch.C:
	case <-again.C:
	case <-over.C:
		return true, nil
	case <-s.stopping:
		return true, errStopping()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	return false, nil
}

// Describe implements Executions.
func (e *executions) Describe(ctx context.Context, in *perdurev1.DescribeRequest) (*perdurev1.DescribeResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, anyID(in.Id)); err != nil {
		return nil, err
	}
	reply, index, err := e.s.router.Query(ctx, level(in.Level), &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Describe{Describe: in}})
	if err != nil {
		return nil, err
	}
	out := reply.GetDescribe()
	out.ReadIndex = index
	e.s.nameHolder(ctx, ns, level(in.Level), out.Execution)
	return out, nil
}

// Journal implements Executions.
func (e *executions) Journal(ctx context.Context, in *perdurev1.JournalRequest) (*perdurev1.JournalResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, anyID(in.Id)); err != nil {
		return nil, err
	}
	reply, index, err := e.s.router.Query(ctx, level(in.Level), &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Journal{Journal: in}})
	if err != nil {
		return nil, err
	}
	out := reply.GetJournal()
	out.ReadIndex = index
	return out, nil
}

// List implements Executions: every partition answers its part, and the parts are merged.
func (e *executions) List(ctx context.Context, in *perdurev1.ListRequest) (*perdurev1.ListResponse, error) {
	ns, err := namespace(in.Namespace)
	if err != nil {
		return nil, err
	}
	limit := int(in.Limit)
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	var all []*perdurev1.ExecutionSummary
	var ends []query.ListPosition // where partitions that have more have stopped
	for p := range e.s.router.Partitions() {
		reply, _, err := e.s.router.Read(ctx, p, level(in.Level), &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_List{List: in}})
		if err != nil {
			return nil, err
		}
		part := reply.GetList()
		all = append(all, part.Executions...)
		if len(part.Cursor) > 0 {
			end, err := query.DecodeListPosition(part.Cursor)
			if err != nil {
				return nil, err
			}
			ends = append(ends, end)
		}
	}
	slices.SortFunc(all, query.CompareListed)
	// Beyond the first partition's last row, the others may have rows that the first has not returned yet.
	var until *perdurev1.ExecutionSummary
	for _, end := range ends {
		s := &perdurev1.ExecutionSummary{Id: end.ID, CreatedMs: end.CreatedMS}
		if until == nil || query.CompareListed(s, until) < 0 {
			until = s
		}
	}
	out := &perdurev1.ListResponse{}
	for _, s := range all {
		if len(out.Executions) == limit || until != nil && query.CompareListed(s, until) > 0 {
			break
		}
		out.Executions = append(out.Executions, s)
	}
	switch n := len(out.Executions); {
	case n > 0 && (n < len(all) || until != nil):
		last := out.Executions[n-1]
		out.Cursor = query.ListPosition{CreatedMS: last.CreatedMs, ID: last.Id}.Encode()
	case n == 0 && until != nil:
		out.Cursor = query.ListPosition{CreatedMS: until.CreatedMs, ID: until.Id}.Encode()
	}
	return out, nil
}

// Signal implements Executions.
func (e *executions) Signal(ctx context.Context, in *perdurev1.SignalRequest) (*perdurev1.SignalResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, anyID(in.Id), name("signal", in.Name), payload("signal", in.Payload)); err != nil {
		return nil, err
	}
	if start := in.GetStart(); start != nil {
		if err := firstError(rootID(in.Id), startContent(start)); err != nil {
			return nil, err
		}
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Signal{Signal: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetSignal(), nil
}

// Cancel implements Executions.
func (e *executions) Cancel(ctx context.Context, in *perdurev1.CancelRequest) (*perdurev1.CancelResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, anyID(in.Id), reason(in.Reason), duration("grace", in.GraceMs)); err != nil {
		return nil, err
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Cancel{Cancel: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetCancel(), nil
}

// Terminate implements Executions.
func (e *executions) Terminate(ctx context.Context, in *perdurev1.TerminateRequest) (*perdurev1.TerminateResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, anyID(in.Id), reason(in.Reason)); err != nil {
		return nil, err
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Terminate{Terminate: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetTerminate(), nil
}

// Restart implements Executions.
func (e *executions) Restart(ctx context.Context, in *perdurev1.RestartRequest) (*perdurev1.RestartResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, anyID(in.Id), known("from", in.From),
		text("component digest", in.ComponentDigest, maxDigestBytes)); err != nil {
		return nil, err
	}
	if in.Event != 0 && in.From != perdurev1.RestartFrom_RESTART_FROM_EVENT {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "restart names event %d but does not begin at an event", in.Event).With("id", in.Id)
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Restart{Restart: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetRestart(), nil
}

// known checks that a value of an enum is one that this version has.
func known(what string, v protoreflect.Enum) error {
	if v.Descriptor().Values().ByNumber(v.Number()) == nil {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "unknown value of %s: %d", what, v.Number())
	}
	return nil
}

func reason(s string) error { return text("reason", s, maxReasonBytes) }
