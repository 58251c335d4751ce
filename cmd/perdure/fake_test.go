package main

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// fakeNow is the clock of the fake server and of the commands under test.
var fakeNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at is a wire time, so long before fakeNow.
func at(ago time.Duration) int64 { return fakeNow.Add(-ago).UnixMilli() }

// fakeServer answers the native API from maps, over a real connection. It knows just enough rules for the
// commands to meet every kind of answer.
type fakeServer struct {
	perdurev1.UnimplementedExecutionsServer
	perdurev1.UnimplementedPromisesServer
	perdurev1.UnimplementedClusterServer

	mu         sync.Mutex
	executions map[string]*perdurev1.Execution
	inputs     map[string][]byte
	journals   map[string][]*perdurev1.JournalEntry
	order      []string
	promises   map[string]*perdurev1.Promise
	// statuses are the answers of ClusterStatus in order; the last one repeats.
	statuses []*perdurev1.ClusterStatus
	// answered gets a value for each answer, if a test receives it.
	answered chan struct{}
	// rebuilt lets rebuilds end; nil: at once.
	rebuilt chan struct{}
	// purged is listed and not found.
	purged string
	// last is the last request of each kind, by message name.
	last map[string]proto.Message
	// refuse, when set, is the answer to everything.
	refuse error
	// asked is closed when the first question for a result is held open.
	asked     chan struct{}
	askedOnce sync.Once
	// finished is closed by finish; questions held open then look again.
	finished chan struct{}
}

func newFakeServer() *fakeServer {
	return &fakeServer{
		executions: map[string]*perdurev1.Execution{},
		inputs:     map[string][]byte{},
		journals:   map[string][]*perdurev1.JournalEntry{},
		promises:   map[string]*perdurev1.Promise{},
		last:       map[string]proto.Message{},
		asked:      make(chan struct{}),
		finished:   make(chan struct{}),
	}
}

// serve listens on loopback until the test ends and returns the address.
func (s *fakeServer) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(8 << 20))
	perdurev1.RegisterExecutionsServer(server, s)
	perdurev1.RegisterPromisesServer(server, s)
	perdurev1.RegisterClusterServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func (s *fakeServer) add(e *perdurev1.Execution) *perdurev1.Execution {
	if e.Namespace == "" {
		e.Namespace = "default"
	}
	s.executions[e.Id] = e
	s.order = append([]string{e.Id}, s.order...)
	return e
}

// finish completes an execution and wakes the callers that wait for its result.
func (s *fakeServer) finish(id string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.executions[id]
	e.Status = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	e.Outcome = valueOf(value)
	close(s.finished)
}

func valueOf(value []byte) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: value}}
}

func failureOf(kind, message string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: kind, Message: message}}}
}

// note keeps a request and returns the refusal, if there is one.
func (s *fakeServer) note(m proto.Message) error {
	s.last[string(m.ProtoReflect().Descriptor().Name())] = m
	return s.refuse
}

func (s *fakeServer) find(namespace, id string) (*perdurev1.Execution, error) {
	if e := s.executions[id]; e != nil && e.Namespace == namespace && id != s.purged {
		return e, nil
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, "there is no execution %q in namespace %q", id, namespace).
		With("id", id).With("namespace", namespace)
}

func (s *fakeServer) Start(_ context.Context, r *perdurev1.StartRequest) (*perdurev1.StartResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	if e := s.executions[r.Id]; e != nil {
		if e.Function != r.Function || string(s.inputs[r.Id]) != string(r.Input) {
			return nil, api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "execution %q was started with another function or input", r.Id).With("id", r.Id)
		}
		return &perdurev1.StartResponse{Id: e.Id, Incarnation: e.Incarnation, Status: e.Status}, nil
	}
	if strings.HasPrefix(r.Function, "unknown") && !r.AllowUnknownFunction {
		return nil, api.Errorf(perdurev1.Reason_REASON_FUNCTION_UNKNOWN, "no worker has registered function %q", r.Function).With("function", r.Function)
	}
	e := s.add(&perdurev1.Execution{Namespace: r.Namespace, Id: r.Id, Function: r.Function, Incarnation: 100, CreatedMs: at(0),
		Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING})
	s.inputs[r.Id] = r.Input
	if r.Function == "echo" {
		e.Status, e.Outcome = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, valueOf(r.Input)
	}
	return &perdurev1.StartResponse{Id: e.Id, Incarnation: e.Incarnation, Created: true, Status: e.Status}, nil
}

func (s *fakeServer) Result(ctx context.Context, r *perdurev1.ResultRequest) (*perdurev1.ResultResponse, error) {
	look := func() (*perdurev1.ResultResponse, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.note(r); err != nil {
			return nil, err
		}
		e, err := s.find(r.Namespace, r.Id)
		if err != nil {
			return nil, err
		}
		return &perdurev1.ResultResponse{Done: ended(e.Status), Status: e.Status, Outcome: e.Outcome, CleanupId: e.GetCleanup().GetId()}, nil
	}
	resp, err := look()
	if err != nil || resp.Done || r.WaitMs == 0 {
		return resp, err
	}
	s.askedOnce.Do(func() { close(s.asked) })
	select {
	case <-s.finished:
	case <-time.After(time.Duration(r.WaitMs) * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return look()
}

func (s *fakeServer) Describe(_ context.Context, r *perdurev1.DescribeRequest) (*perdurev1.DescribeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	e, err := s.find(r.Namespace, r.Id)
	return &perdurev1.DescribeResponse{Execution: e}, err
}

func (s *fakeServer) Journal(_ context.Context, r *perdurev1.JournalRequest) (*perdurev1.JournalResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	if _, err := s.find(r.Namespace, r.Id); err != nil {
		return nil, err
	}
	entries := s.journals[r.Id]
	next := uint64(len(entries))
	// Small pages, so that reading one takes several.
	page := entries[min(r.FromSeq, next):min(r.FromSeq+13, next)]
	return &perdurev1.JournalResponse{Entries: page, NextSeq: next}, nil
}

func (s *fakeServer) List(_ context.Context, r *perdurev1.ListRequest) (*perdurev1.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	resp := &perdurev1.ListResponse{}
	skip := len(r.Cursor)
	for _, id := range s.order {
		e := s.executions[id]
		fits := len(r.Status) == 0
		for _, status := range r.Status {
			fits = fits || status == e.Status
		}
		if !fits || e.Namespace != r.Namespace || r.Function != "" && r.Function != e.Function || !strings.HasPrefix(id, r.IdPrefix) ||
			r.Problem && e.LastProblem == "" {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if len(resp.Executions) == 2 { // small pages again
			resp.Cursor = append(r.Cursor, 'x', 'x')
			break
		}
		resp.Executions = append(resp.Executions, &perdurev1.ExecutionSummary{Id: id, Problem: e.LastProblem, Function: e.Function, Status: e.Status,
			CreatedMs: e.CreatedMs, ClosedMs: e.ClosedMs, Incarnation: e.Incarnation})
	}
	return resp, nil
}

func (s *fakeServer) Signal(_ context.Context, r *perdurev1.SignalRequest) (*perdurev1.SignalResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	if _, err := s.find(r.Namespace, r.Id); err != nil && r.Start != nil {
		s.add(&perdurev1.Execution{Namespace: r.Namespace, Id: r.Id, Function: r.Start.Function, Incarnation: 100, CreatedMs: at(0),
			Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING})
		return &perdurev1.SignalResponse{DeliveryId: 1, Started: true}, nil
	}
	_, err := s.open(r.Namespace, r.Id)
	return &perdurev1.SignalResponse{DeliveryId: 1}, err
}

func (s *fakeServer) open(namespace, id string) (*perdurev1.Execution, error) {
	e, err := s.find(namespace, id)
	if err == nil && ended(e.Status) {
		err = api.Errorf(perdurev1.Reason_REASON_ALREADY_FINISHED, "execution %q has finished", id).With("id", id)
	}
	return e, err
}

func (s *fakeServer) Cancel(_ context.Context, r *perdurev1.CancelRequest) (*perdurev1.CancelResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	e, err := s.open(r.Namespace, r.Id)
	if err != nil {
		return nil, err
	}
	if e.Cleanup != nil { // its worker acknowledges at once
		e.Status, e.Outcome = perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED, failureOf("cancelled", r.Reason)
	}
	return &perdurev1.CancelResponse{Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING}, nil
}

func (s *fakeServer) Terminate(_ context.Context, r *perdurev1.TerminateRequest) (*perdurev1.TerminateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	if _, err := s.open(r.Namespace, r.Id); err != nil {
		return nil, err
	}
	return &perdurev1.TerminateResponse{Status: perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED}, nil
}

func (s *fakeServer) Restart(_ context.Context, r *perdurev1.RestartRequest) (*perdurev1.RestartResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	e, err := s.find(r.Namespace, r.Id)
	if err != nil {
		return nil, err
	}
	if e.ParentId != "" {
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "execution %q is part of %q, which decides about it", r.Id, e.ParentId).With("id", r.Id)
	}
	return &perdurev1.RestartResponse{Incarnation: e.Incarnation + 9, FormerIncarnation: e.Incarnation, KeptEvents: r.Event}, nil
}

func (s *fakeServer) Create(_ context.Context, r *perdurev1.CreatePromiseRequest) (*perdurev1.PromiseResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	p := s.promises[r.Id]
	if p == nil {
		p = &perdurev1.Promise{Namespace: r.Namespace, Id: r.Id, State: perdurev1.PromiseState_PROMISE_STATE_PENDING, Param: r.Param,
			Tags: r.Tags, CreatedAtMs: at(0), TimeoutAtMs: at(0) + r.TimeoutMs}
		s.promises[r.Id] = p
	}
	return &perdurev1.PromiseResponse{Promise: p}, nil
}

func (s *fakeServer) promise(id string) (*perdurev1.Promise, error) {
	if p := s.promises[id]; p != nil {
		return p, nil
	}
	return nil, api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND, "there is no promise %q", id).With("id", id)
}

func (s *fakeServer) Get(_ context.Context, r *perdurev1.GetPromiseRequest) (*perdurev1.PromiseResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	p, err := s.promise(r.Id)
	return &perdurev1.PromiseResponse{Promise: p}, err
}

func (s *fakeServer) Settle(_ context.Context, r *perdurev1.SettlePromiseRequest) (*perdurev1.PromiseResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.note(r); err != nil {
		return nil, err
	}
	if s.executions[r.Id] != nil {
		return nil, api.Errorf(perdurev1.Reason_REASON_NOT_SETTLEABLE, "promise %q is the result of an execution", r.Id).With("id", r.Id)
	}
	p, err := s.promise(r.Id)
	if err == nil && p.State == perdurev1.PromiseState_PROMISE_STATE_PENDING {
		p.State, p.Value, p.SettledAtMs = r.State, r.Value, at(0)
	}
	return &perdurev1.PromiseResponse{Promise: p}, err
}

func (s *fakeServer) Await(ctx context.Context, r *perdurev1.AwaitPromiseRequest) (*perdurev1.PromiseResponse, error) {
	look := func() (*perdurev1.PromiseResponse, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, err := s.promise(r.Id)
		if err != nil {
			return nil, err
		}
		return &perdurev1.PromiseResponse{Promise: proto.Clone(p).(*perdurev1.Promise)}, nil
	}
	resp, err := look()
	if err != nil || resp.Promise.State != perdurev1.PromiseState_PROMISE_STATE_PENDING {
		return resp, err
	}
	s.askedOnce.Do(func() { close(s.asked) })
	select {
	case <-s.finished:
	case <-time.After(time.Duration(r.WaitMs) * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return look()
}
