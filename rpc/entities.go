package rpc

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
	"perdure/partition/group"
	"perdure/recovery"
)

type entities struct {
	perdurev1.UnimplementedEntitiesServer
	s *Server
}

// entityID checks the id of an entity.
func entityID(s string) error {
	if err := id.ValidateEntity(s); err != nil {
		return malformedID(s, err)
	}
	return nil
}

// entityName checks the name of an entity that a worker serves.
func entityName(s string) error {
	if len(s) > id.MaxEntityName || strings.ContainsAny(s, "@:") {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the name of entity %q holds an '@' or ':', or exceeds %d bytes", short(s), id.MaxEntityName)
	}
	return name("entity", s)
}

// Get implements Entities.
func (e *entities) Get(ctx context.Context, in *perdurev1.GetEntityRequest) (*perdurev1.GetEntityResponse, error) {
	ns, err := namespace(in.Namespace)
	if err := firstError(err, entityID(in.Id)); err != nil {
		return nil, err
	}
	reply, index, err := e.s.router.Query(ctx, level(in.Level), &commandv1.Query{Namespace: ns, Id: in.Id, Kind: &commandv1.Query_Entity{Entity: in}})
	if err != nil {
		return nil, err
	}
	out := reply.GetEntity()
	out.ReadIndex = index
	return out, nil
}

// Signal implements Entities.
func (e *entities) Signal(ctx context.Context, in *perdurev1.SignalEntityRequest) (*perdurev1.SignalEntityResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, entityID(in.Id), name("operation", in.Operation), payload("input", in.Input), duration("delay", in.DelayMs)); err != nil {
		return nil, err
	}
	cmd := proto.CloneOf(in)
	cmd.Request = nil
	reply, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_SignalEntity{SignalEntity: cmd}})
	if err != nil {
		return nil, err
	}
	return reply.GetSignalEntity(), nil
}

// Call implements Entities.
func (e *entities) Call(ctx context.Context, in *perdurev1.CallEntityRequest) (*perdurev1.CallEntityResponse, error) {
	ns, err := namespace(in.Namespace)
	rid, rerr := request(in.Request)
	if err := firstError(err, rerr, entityID(in.Id), name("operation", in.Operation), payload("input", in.Input), duration("wait", in.WaitMs)); err != nil {
		return nil, err
	}
	cmd := proto.CloneOf(in)
	cmd.Request, cmd.WaitMs = nil, 0
	if _, err := e.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_CallEntity{CallEntity: cmd}}); err != nil {
		return nil, err
	}
	call := id.EntityCall(in.Id, hex.EncodeToString(rid.Id))
	in.Input = nil
	e.s.gate.Keep(ctx)()
	reply, _, err := e.s.await(ctx, group.Linearizable, &commandv1.Query{
		Namespace: ns, Id: call, Kind: &commandv1.Query_EntityAnswer{EntityAnswer: &commandv1.EntityAnswerQuery{}}}, in.WaitMs)
	if err != nil {
		return nil, err
	}
	return reply.GetEntityAnswer(), nil
}

// List implements Entities: every partition answers its part, and the parts are merged.
func (e *entities) List(ctx context.Context, in *perdurev1.ListEntitiesRequest) (*perdurev1.ListEntitiesResponse, error) {
	ns, err := namespace(in.Namespace)
	if err == nil && in.Name != "" {
		err = entityName(in.Name)
	}
	if err != nil {
		return nil, err
	}
	limit := int(in.Limit)
	if limit <= 0 {
		limit = 100
	}
	limit = min(limit, 1000)
	var all []*perdurev1.Entity
	more := false
	for p := range e.s.router.Partitions() {
		reply, _, err := e.s.router.Read(ctx, p, level(in.Level), &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_Entities{Entities: in}})
		if err != nil {
			return nil, err
		}
		all = append(all, reply.GetEntities().Entities...)
		more = more || len(reply.GetEntities().Cursor) > 0
	}
	// Each partition's page begins after the cursor and holds limit entities, so the first limit of all pages are next.
	slices.SortFunc(all, func(a, b *perdurev1.Entity) int { return strings.Compare(a.Id, b.Id) })
	out := &perdurev1.ListEntitiesResponse{Entities: all[:min(len(all), limit)]}
	if n := len(out.Entities); n > 0 && (more || n < len(all)) {
		out.Cursor = []byte(out.Entities[n-1].Id)
	}
	return out, nil
}

// commitEntity checks one step of an entity and returns its command.
func (w *session) commitEntity(c *perdurev1.CommitEntity) (*commandv1.Command, error) {
	rid, err := request(c.Request)
	if err := firstError(err, w.own(c.Task), entityCommitForm(c)); err != nil {
		return nil, err
	}
	c.Request, c.Credit = nil, 0
	return &commandv1.Command{Request: rid, Namespace: c.Task.Namespace, Id: c.Task.Id, Kind: &commandv1.Command_CommitEntity{CommitEntity: c}}, nil
}

// entityCommitForm checks the sizes and names in a commit of an entity.
func entityCommitForm(c *perdurev1.CommitEntity) error {
	if n := max(len(c.Results), len(c.Signals)); n > id.MaxCommitItems {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "commit of %d results and signals exceeds %d", n, id.MaxCommitItems).With("id", c.Task.GetId())
	}
	total := len(c.Value)
	if err := payload("the value of "+short(c.Task.GetId()), c.Value); err != nil {
		return err
	}
	for _, r := range c.Results {
		total += len(r.Outcome.GetValue()) + failureBytes(r.Outcome.GetFailure())
		if err := firstError(payload("result of "+short(r.Request), r.Outcome.GetValue()), failure("failure of "+short(r.Request), r.Outcome.GetFailure())); err != nil {
			return err
		}
	}
	for _, s := range c.Signals {
		total += len(s.Input)
		if err := entitySignal(s); err != nil {
			return err
		}
	}
	return commitBytes(c.Task.GetId(), total)
}

func entitySignal(s *perdurev1.EntitySignal) error {
	return firstError(entityID(s.GetId()), name("operation", s.GetOperation()), payload("input", s.GetInput()), duration("delay", s.GetDelayMs()))
}

// maxLocks bounds the entities of one critical section.
const maxLocks = 128

// entityLocks checks the entities of a critical section.
func entityLocks(l *perdurev1.EntityLocks) error {
	if n := len(l.GetIds()); n == 0 || n > maxLocks {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a critical section of %d entities, not 1 to %d", n, maxLocks)
	}
	for _, one := range l.GetIds() {
		if err := entityID(one); err != nil {
			return err
		}
	}
	return nil
}

// nameHolder says of an execution that waits for locks which entity it waits for, and which execution holds that. It
// leaves the wake source as it is when an entity cannot be read.
func (s *Server) nameHolder(ctx context.Context, ns string, l group.Level, x *perdurev1.Execution) {
	for _, one := range x.GetWaitingLocks() {
		reply, _, err := s.router.Query(ctx, l, &commandv1.Query{Namespace: ns, Id: one, Kind: &commandv1.Query_Entity{
			Entity: &perdurev1.GetEntityRequest{Id: one}}})
		if err != nil {
			return
		}
		lock := reply.GetEntity().GetEntity().GetLock()
		if lock.GetHolder() == x.Id && lock.GetHolderIncarnation() == x.Incarnation {
			continue
		}
		x.WakeSource = "lock of " + one
		if lock != nil {
			x.WakeSource += ", held by " + lock.Holder
		}
		return
	}
}

// nameEntity says of an execution that waits for an operation of an entity why that does not run: another critical section
// holds the entity, or no worker has its task.
func (s *Server) nameEntity(ctx context.Context, ns string, l group.Level, x *perdurev1.Execution) {
	one, waits := strings.CutPrefix(x.GetWakeSource(), "entity ")
	if !waits {
		return
	}
	reply, _, err := s.router.Query(ctx, l, &commandv1.Query{Namespace: ns, Id: one, Kind: &commandv1.Query_Entity{
		Entity: &perdurev1.GetEntityRequest{Id: one}}})
	if err != nil {
		return
	}
	e := reply.GetEntity().GetEntity()
	switch lock := e.GetLock(); {
	case lock != nil && lock.GetHolder() != x.Id:
		x.WakeSource += ", locked by " + lock.GetHolder()
	case e.GetTask().GetState() == recovery.TaskPending.String():
		x.WakeSource += ", no worker"
	}
}
