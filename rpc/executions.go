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
	ctx, cancel := withWriteTimeout(ctx)
	defer cancel()
	return s.router.Propose(ctx, cmd)
}

// withWriteTimeout gives a context without a deadline one.
func withWriteTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, writeTimeout)
}

// Start implements Executions.
func (e *executions) Start(ctx context.Context, in *perdurev1.StartRequest) (*perdurev1.StartResponse, error) {
	ns, rid, err := startForm(in)
	if err != nil {
		return nil, err
	}
	cmd := proto.CloneOf(in)
	cmd.Request, cmd.WaitMs = nil, 0
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Start{Start: cmd}})
	if err != nil {
		return nil, err
	}
	out := reply.GetStart()
	if in.WaitMs > 0 {
		// What the caller sent is in the log: while it waits it holds none of it.
		in.Input, in.Tags = nil, nil
		e.s.gate.Keep(ctx)()
		out.Result = e.s.resultOf(ctx, ns, in.Id, out.Incarnation, in.WaitMs)
	}
	return out, nil
}

// resultOf waits for the result of a started execution. It returns nil if there is none yet, or if that cannot be found
// out: the start has succeeded, so the caller asks for the result then.
func (s *Server) resultOf(ctx context.Context, ns, objectID string, incarnation uint64, waitMS int64) *perdurev1.ResultResponse {
	reply, index, err := s.await(ctx, group.Linearizable, resultQuery(ns, objectID, incarnation), waitMS)
	if err != nil || !reply.GetResult().Done {
		return nil
	}
	out := reply.GetResult()
	out.ReadIndex = index
	return out
}

// resultQuery asks for the result of an incarnation or a later one.
func resultQuery(ns, objectID string, incarnation uint64) *commandv1.Query {
	return &commandv1.Query{Namespace: ns, Id: objectID, Kind: &commandv1.Query_Result{
		Result: &perdurev1.ResultRequest{Namespace: ns, Id: objectID, Incarnation: incarnation}}}
}

// startForm checks a start, and returns its namespace and its request id.
func startForm(in *perdurev1.StartRequest) (ns string, rid *perdurev1.RequestID, err error) {
	ns, err = namespace(in.Namespace)
	rid, rerr := request(in.Request)
	return ns, rid, firstError(err, rerr, rootID(in.Id), startContent(in), duration("wait", in.WaitMs))
}

// startContent checks a start without its id.
func startContent(in *perdurev1.StartRequest) error {
	return firstError(function(in.Function), payload("input", in.Input), tags(in.Tags), duration("timeout", in.TimeoutMs),
		text("component digest", in.ComponentDigest, maxDigestBytes), known("reuse", in.Reuse))
}

// Result implements Executions.
func (e *executions) Result(ctx context.Context, in *perdurev1.ResultRequest) (*perdurev1.ResultResponse, error) {
	ns, err := resultForm(in)
	if err != nil {
		return nil, err
	}
	return e.s.result(ctx, level(in.Level), &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Result{Result: in}}, in.WaitMs)
}

// resultForm checks the request for a result, and returns its namespace.
func resultForm(in *perdurev1.ResultRequest) (ns string, err error) {
	ns, err = namespace(in.Namespace)
	return ns, firstError(err, anyID(in.Id), duration("wait", in.WaitMs))
}

// result answers a request for a result, after a wait; see await.
func (s *Server) result(ctx context.Context, level group.Level, q *commandv1.Query, waitMS int64) (*perdurev1.ResultResponse, error) {
	reply, index, err := s.await(ctx, level, q, waitMS)
	if err != nil {
		return nil, err
	}
	out := reply.GetResult()
	out.ReadIndex = index
	return out, nil
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
	e.s.nameEntity(ctx, ns, level(in.Level), out.Execution)
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
	cmd, err := signalCommand(proto.CloneOf(in))
	if err != nil {
		return nil, err
	}
	reply, err := e.s.propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return reply.GetSignal(), nil
}

// signalCommand checks a signal and returns its command, which takes over in.
func signalCommand(in *perdurev1.SignalRequest) (*commandv1.Command, error) {
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
	in.Request = nil
	return &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Signal{Signal: in}}, nil
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
