package rpc

import (
	"context"
	"net/url"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/id"
	"perdure/partition"
)

// clientTasks serves clients of the recovery protocol.
type clientTasks struct {
	perdurev1.UnimplementedClientTasksServer
	s *Server
}

// Limits of requests of clients.
const (
	maxHeaders          = 64
	maxClientHeartbeats = 4096
)

// clientRequest is what every write of a client names.
type clientRequest interface {
	GetRequest() *perdurev1.RequestID
	GetNamespace() string
}

// propose checks what every request has, and proposes the command of a request about an object.
func (c *clientTasks) propose(ctx context.Context, in clientRequest, objectID string, cmd *commandv1.Command, checks ...error) (*commandv1.Reply, error) {
	ns, err := namespace(in.GetNamespace())
	rid, rerr := request(in.GetRequest())
	if err := firstError(append([]error{err, rerr, clientID(objectID)}, checks...)...); err != nil {
		return nil, err
	}
	cmd.Request, cmd.Namespace, cmd.Id = rid, ns, objectID
	return c.s.propose(ctx, cmd)
}

// clientID checks an id that a client of the recovery protocol has given: any text without a NUL.
func clientID(s string) error {
	if err := id.Validate(s); err != nil {
		return malformedID(s, err)
	}
	return nil
}

// promiseID checks the id of any promise: of an execution, or of a client.
func promiseID(s string) error {
	err := anyID(s)
	if err != nil && clientID(s) == nil {
		return nil
	}
	return err
}

// address checks an address: a URI with a scheme.
func address(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || len(s) > id.MaxIDBytes {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%q is no address: it is not a URI with a scheme, of %d bytes at most", short(s), id.MaxIDBytes)
	}
	return nil
}

// value checks the size of what a client gives.
func value(what string, v *perdurev1.Value) error {
	if len(v.GetHeaders()) > maxHeaders {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d headers of %s exceed %d", len(v.GetHeaders()), what, maxHeaders)
	}
	n := len(v.GetData())
	for key, header := range v.GetHeaders() {
		n += len(key) + len(header)
	}
	if n > id.MaxPayloadBytes {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "%s of %d bytes exceeds %d", what, n, id.MaxPayloadBytes)
	}
	return nil
}

// newPromise checks a promise that a client creates.
func newPromise(in *perdurev1.CreateClientPromiseRequest) error {
	if in == nil {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the promise is missing")
	}
	err := firstError(clientID(in.Id), value("param", in.Param), tags(in.Tags))
	if target, ok := in.Tags[state.TagTarget]; err == nil && ok {
		err = address(target)
	}
	return err
}

// settlesTo checks the state of a settlement.
func settlesTo(objectID string, s perdurev1.PromiseState) error {
	switch s {
	case perdurev1.PromiseState_PROMISE_STATE_RESOLVED, perdurev1.PromiseState_PROMISE_STATE_REJECTED, perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED:
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a promise is settled to resolved, rejected or canceled, not %s", s).With("id", short(objectID))
}

// holder checks who acquires a task, and for how long.
func holder(pid string, ttlMS int64) error {
	if ttlMS < 1 {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a lease of %d ms is shorter than 1 ms", ttlMS)
	}
	return name("pid", pid)
}

// CreatePromise implements ClientTasks.
func (c *clientTasks) CreatePromise(ctx context.Context, in *perdurev1.CreateClientPromiseRequest) (*perdurev1.PromiseResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_CreateClientPromise{CreateClientPromise: sent}}, newPromise(in))
	return reply.GetPromise(), err
}

// SettlePromise implements ClientTasks.
func (c *clientTasks) SettlePromise(ctx context.Context, in *perdurev1.SettleClientPromiseRequest) (*perdurev1.PromiseResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_SettleClientPromise{SettleClientPromise: sent}},
		settlesTo(in.Id, in.State), value("value", in.Value))
	return reply.GetPromise(), err
}

// RegisterCallback implements ClientTasks.
func (c *clientTasks) RegisterCallback(ctx context.Context, in *perdurev1.RegisterCallbackRequest) (*perdurev1.PromiseResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_RegisterCallback{RegisterCallback: sent}}, clientID(in.Awaiter))
	return reply.GetPromise(), err
}

// RegisterListener implements ClientTasks.
func (c *clientTasks) RegisterListener(ctx context.Context, in *perdurev1.RegisterListenerRequest) (*perdurev1.PromiseResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_RegisterListener{RegisterListener: sent}}, address(in.Address))
	return reply.GetPromise(), err
}

// Create implements ClientTasks.
func (c *clientTasks) Create(ctx context.Context, in *perdurev1.CreateClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.GetPromise().GetId(), &commandv1.Command{Kind: &commandv1.Command_CreateClientTask{CreateClientTask: sent}},
		newPromise(in.Promise), holder(in.Pid, in.TtlMs))
	return reply.GetClientTask(), err
}

// Get implements ClientTasks.
func (c *clientTasks) Get(ctx context.Context, in *perdurev1.GetClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, clientID(in.Id)); err != nil {
		return nil, err
	}
	reply, index, err := c.s.router.Query(ctx, level(in.Level), &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_ClientTask{ClientTask: in}})
	if err != nil {
		return nil, err
	}
	out := reply.GetClientTask()
	out.ReadIndex = index
	return out, nil
}

// Acquire implements ClientTasks.
func (c *clientTasks) Acquire(ctx context.Context, in *perdurev1.AcquireClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_AcquireClientTask{AcquireClientTask: sent}}, holder(in.Pid, in.TtlMs))
	return reply.GetClientTask(), err
}

// Release implements ClientTasks.
func (c *clientTasks) Release(ctx context.Context, in *perdurev1.ReleaseClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_ReleaseClientTask{ReleaseClientTask: sent}})
	return reply.GetClientTask(), err
}

// Suspend implements ClientTasks.
func (c *clientTasks) Suspend(ctx context.Context, in *perdurev1.SuspendClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	var bad error
	for _, awaited := range in.Awaited {
		bad = firstError(bad, clientID(awaited))
	}
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_SuspendClientTask{SuspendClientTask: sent}}, bad)
	return reply.GetClientTask(), err
}

// Fulfill implements ClientTasks.
func (c *clientTasks) Fulfill(ctx context.Context, in *perdurev1.FulfillClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_FulfillClientTask{FulfillClientTask: sent}},
		settlesTo(in.Id, in.State), value("value", in.Value))
	return reply.GetClientTask(), err
}

// Fence implements ClientTasks.
func (c *clientTasks) Fence(ctx context.Context, in *perdurev1.FenceClientTaskRequest) (*perdurev1.FenceClientTaskResponse, error) {
	var bad error
	switch action := in.Action.(type) {
	case *perdurev1.FenceClientTaskRequest_Create:
		bad = newPromise(action.Create)
	case *perdurev1.FenceClientTaskRequest_Settle:
		bad = firstError(clientID(action.Settle.GetId()), settlesTo(action.Settle.GetId(), action.Settle.GetState()), value("value", action.Settle.GetValue()))
	}
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_FenceClientTask{FenceClientTask: sent}}, bad)
	return reply.GetFence(), err
}

// Heartbeat implements ClientTasks. It proposes one command to each partition that has some of the tasks.
func (c *clientTasks) Heartbeat(ctx context.Context, in *perdurev1.HeartbeatClientTasksRequest) (*perdurev1.HeartbeatClientTasksResponse, error) {
	if len(in.Tasks) > maxClientHeartbeats {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d tasks exceed %d", len(in.Tasks), maxClientHeartbeats)
	}
	ns, err := namespace(in.Namespace)
	if err := firstError(err, name("pid", in.Pid)); err != nil {
		return nil, err
	}
	parts := make([][]*perdurev1.ClientTaskRef, c.s.router.Partitions())
	for _, ref := range in.Tasks {
		if err := clientID(ref.GetId()); err != nil {
			return nil, err
		}
		p := c.s.router.PartitionOf(ns, ref.Id)
		parts[p] = append(parts[p], ref)
	}
	out := &perdurev1.HeartbeatClientTasksResponse{}
	for _, refs := range parts {
		if len(refs) == 0 {
			continue
		}
		sent := &perdurev1.HeartbeatClientTasksRequest{Namespace: ns, Pid: in.Pid, Tasks: refs}
		// Without the caller's request id: each partition has a command of its own, and repeating it is harmless.
		reply, err := c.propose(ctx, sent, refs[0].Id, &commandv1.Command{Kind: &commandv1.Command_HeartbeatClientTasks{HeartbeatClientTasks: sent}})
		if err != nil {
			return nil, err
		}
		out.Held = append(out.Held, reply.GetClientHeartbeat().GetHeld()...)
	}
	return out, nil
}

// Halt implements ClientTasks.
func (c *clientTasks) Halt(ctx context.Context, in *perdurev1.HaltClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_HaltClientTask{HaltClientTask: sent}})
	return reply.GetClientTask(), err
}

// Continue implements ClientTasks.
func (c *clientTasks) Continue(ctx context.Context, in *perdurev1.ContinueClientTaskRequest) (*perdurev1.ClientTaskResponse, error) {
	sent := proto.CloneOf(in)
	sent.Request = nil
	reply, err := c.propose(ctx, in, in.Id, &commandv1.Command{Kind: &commandv1.Command_ContinueClientTask{ContinueClientTask: sent}})
	return reply.GetClientTask(), err
}

// Search implements ClientTasks.
func (c *clientTasks) Search(ctx context.Context, in *perdurev1.SearchClientTasksRequest) (*perdurev1.SearchClientTasksResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, searchLimit(in.Limit)); err != nil {
		return nil, err
	}
	found, cursor, err := search(c.s, in.Limit, func(partition uint32) ([]*perdurev1.ClientTask, string, error) {
		reply, _, err := c.s.router.Read(ctx, partition, level(in.Level), &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_ClientTasks{ClientTasks: in}})
		return reply.GetClientTasks().GetTasks(), reply.GetClientTasks().GetCursor(), err
	})
	return &perdurev1.SearchClientTasksResponse{Tasks: found, Cursor: cursor}, err
}

// Search implements Promises.
func (p *promises) Search(ctx context.Context, in *perdurev1.SearchPromisesRequest) (*perdurev1.SearchPromisesResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, searchLimit(in.Limit), tags(in.Tags)); err != nil {
		return nil, err
	}
	found, cursor, err := search(p.s, in.Limit, func(partition uint32) ([]*perdurev1.Promise, string, error) {
		reply, _, err := p.s.router.Read(ctx, partition, level(in.Level), &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_Promises{Promises: in}})
		return reply.GetPromises().GetPromises(), reply.GetPromises().GetCursor(), err
	})
	return &perdurev1.SearchPromisesResponse{Promises: found, Cursor: cursor}, err
}

func searchLimit(n uint32) error {
	if n > 1000 {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a limit of %d exceeds 1000", n)
	}
	return nil
}

// search merges what the partitions have found, ascending by id.
func search[T interface{ GetId() string }](s *Server, limit uint32, part func(partition uint32) ([]T, string, error)) (page []T, cursor string, err error) {
	if limit == 0 {
		limit = 100
	}
	pages, cursors := make([][]T, s.router.Partitions()), make([]string, s.router.Partitions())
	for p := range pages {
		if pages[p], cursors[p], err = part(uint32(p)); err != nil {
			return nil, "", err
		}
	}
	page, cursor = partition.MergePages(pages, cursors, T.GetId, int(limit))
	return page, cursor, nil
}
