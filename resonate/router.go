package resonate

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition"
	"perdure/partition/group"
)

// The times of an operation.
const (
	// attemptPause is the time between two attempts.
	attemptPause = 50 * time.Millisecond
	// preloadTimeout bounds the read of promises that only spare requests.
	preloadTimeout = time.Second
)

// searchReads bounds the pages that a search reads of one partition.
const searchReads = 16

// NewStore makes the Store that sends operations to the partitions' leaders, wherever they are. Its promises are those of
// one namespace. dotted is [Options.DottedIDs].
func NewStore(router *partition.Router, namespace string, dotted bool) Store {
	return &leaders{router: router, namespace: namespace, ids: ids{dotted: dotted}, now: func(context.Context) int64 { return time.Now().UnixMilli() }}
}

// partitions are what performs a Store's operations: *partition.Router, or the one partition of a Sandbox.
type partitions interface {
	Partitions() uint32
	PartitionOf(namespace, id string) uint32
	// Propose has the partition of the command's id apply it. Read reads a partition. Errors are *api.Error or *Refusal.
	Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error)
	Read(ctx context.Context, partition uint32, level group.Level, q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, err error)
}

// leaders is the Store over partitions.
type leaders struct {
	router    partitions
	namespace string
	ids       ids
	// now is the time of an operation, in Unix milliseconds, for what the partitions do not compute: the first run of a
	// schedule.
	now func(ctx context.Context) int64
}

// propose has the partition of an id apply a command. It repeats the command under one request id until ctx ends, so the
// answer is that of the attempt that was applied, whichever leader stored it.
func (l *leaders) propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	began, requestID := time.Now(), make([]byte, 16)
	if _, err := rand.Read(requestID); err != nil {
		return nil, err
	}
	for {
		// A command of its own for each attempt: the log may still hold an earlier one's.
		reply, err := l.router.Propose(ctx, &commandv1.Command{Namespace: l.namespace, Id: cmd.Id, Kind: cmd.Kind,
			Request: &perdurev1.RequestID{Id: requestID, AgeMs: uint64(time.Since(began).Milliseconds())}})
		if !worthRepeating(ctx, err) {
			return reply, err
		}
		pause(ctx, err)
	}
}

// bounded bounds what has no deadline yet: a request has one, the run of a schedule has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answerTimeout)
}

// worthRepeating reports whether another attempt may have an answer that this one lacks.
func worthRepeating(ctx context.Context, err error) bool {
	e, ours := api.FromStatus(err)
	return err != nil && ours && ctx.Err() == nil && api.Retryable(e.Reason) && e.Reason != perdurev1.Reason_REASON_SHUTTING_DOWN
}

// pause waits until another attempt is worth it, or ctx ends.
func pause(ctx context.Context, err error) {
	wait := attemptPause
	if e, ours := api.FromStatus(err); ours {
		wait = max(wait, time.Duration(e.RetryAfterMS())*time.Millisecond)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// read asks the leader of a partition. It repeats the query until ctx ends.
func (l *leaders) read(ctx context.Context, partition uint32, q *commandv1.Query) (*commandv1.QueryReply, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	q.Namespace = l.namespace
	for {
		reply, _, err := l.router.Read(ctx, partition, group.Linearizable, q)
		if !worthRepeating(ctx, err) {
			return reply, err
		}
		pause(ctx, err)
	}
}

func (l *leaders) partitionOf(id string) uint32 { return l.router.PartitionOf(l.namespace, id) }

// promise is the promise of a reply.
func (l *leaders) promise(reply *commandv1.Reply, err error) (Promise, error) {
	if err != nil {
		return Promise{}, err
	}
	return l.ids.promiseRecord(reply.GetPromise().GetPromise()), nil
}

func (l *leaders) Promise(ctx context.Context, id string) (Promise, error) {
	id = l.ids.inward(id)
	reply, err := l.read(ctx, l.partitionOf(id), &commandv1.Query{Id: id, Kind: &commandv1.Query_Promise{
		Promise: &perdurev1.GetPromiseRequest{Namespace: l.namespace, Id: id}}})
	if err != nil {
		return Promise{}, err
	}
	return l.ids.promiseRecord(reply.GetPromise().GetPromise()), nil
}

// create is the content of a command that creates a promise.
func (l *leaders) create(req NewPromise) *perdurev1.CreateClientPromiseRequest {
	return &perdurev1.CreateClientPromiseRequest{
		Namespace: l.namespace, Id: l.ids.inward(req.ID), Param: req.Param.stored(), Tags: req.Tags, TimeoutAtMs: req.TimeoutAt, CreatedAtMs: req.CreatedAt}
}

// settle is the content of a command that settles a promise.
func (l *leaders) settle(req Settlement) *perdurev1.SettleClientPromiseRequest {
	return &perdurev1.SettleClientPromiseRequest{
		Namespace: l.namespace, Id: l.ids.inward(req.ID), State: stateNumber(promiseStateNames, req.State), Value: req.Value.stored()}
}

func (l *leaders) CreatePromise(ctx context.Context, req NewPromise) (Promise, error) {
	content := l.create(req)
	return l.promise(l.propose(ctx, &commandv1.Command{Id: content.Id, Kind: &commandv1.Command_CreateClientPromise{CreateClientPromise: content}}))
}

func (l *leaders) SettlePromise(ctx context.Context, req Settlement) (Promise, error) {
	content := l.settle(req)
	return l.promise(l.propose(ctx, &commandv1.Command{Id: content.Id, Kind: &commandv1.Command_SettleClientPromise{SettleClientPromise: content}}))
}

func (l *leaders) RegisterCallback(ctx context.Context, awaited, awaiter string) (Promise, error) {
	awaited, awaiter = l.ids.inward(awaited), l.ids.inward(awaiter)
	return l.promise(l.propose(ctx, &commandv1.Command{Id: awaited, Kind: &commandv1.Command_RegisterCallback{
		RegisterCallback: &perdurev1.RegisterCallbackRequest{Namespace: l.namespace, Id: awaited, Awaiter: awaiter}}}))
}

func (l *leaders) RegisterListener(ctx context.Context, awaited, address string) (Promise, error) {
	awaited = l.ids.inward(awaited)
	return l.promise(l.propose(ctx, &commandv1.Command{Id: awaited, Kind: &commandv1.Command_RegisterListener{
		RegisterListener: &perdurev1.RegisterListenerRequest{Namespace: l.namespace, Id: awaited, Address: address}}}))
}

func (l *leaders) Task(ctx context.Context, id string) (Task, error) {
	id = l.ids.inward(id)
	reply, err := l.read(ctx, l.partitionOf(id), &commandv1.Query{Id: id, Kind: &commandv1.Query_ClientTask{
		ClientTask: &perdurev1.GetClientTaskRequest{Namespace: l.namespace, Id: id}}})
	if err != nil {
		return Task{}, err
	}
	return l.ids.taskRecord(reply.GetClientTask().GetTask()), nil
}

// task has a command about a task applied.
func (l *leaders) task(ctx context.Context, cmd *commandv1.Command) (*perdurev1.ClientTaskResponse, error) {
	reply, err := l.propose(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return reply.GetClientTask(), nil
}

// held has a command applied that gives a task to a process.
func (l *leaders) held(ctx context.Context, cmd *commandv1.Command) (Held, error) {
	reply, err := l.task(ctx, cmd)
	if err != nil {
		return Held{}, err
	}
	h := Held{Task: l.ids.taskRecord(reply.Task), Promise: l.ids.promiseRecord(reply.Promise)}
	// The first holder has made no steps yet.
	if h.Task.State == "acquired" && h.Task.Version > 1 {
		h.Preload = l.preload(ctx, h.Promise)
	}
	return h, nil
}

func (l *leaders) CreateTask(ctx context.Context, req NewPromise, lease Lease) (Held, error) {
	content := &perdurev1.CreateClientTaskRequest{Namespace: l.namespace, Promise: l.create(req), Pid: lease.PID, TtlMs: lease.TTL}
	return l.held(ctx, &commandv1.Command{Id: content.Promise.Id, Kind: &commandv1.Command_CreateClientTask{CreateClientTask: content}})
}

func (l *leaders) AcquireTask(ctx context.Context, ref TaskRef, lease Lease) (Held, error) {
	id := l.ids.inward(ref.ID)
	return l.held(ctx, &commandv1.Command{Id: id, Kind: &commandv1.Command_AcquireClientTask{AcquireClientTask: &perdurev1.AcquireClientTaskRequest{
		Namespace: l.namespace, Id: id, Version: ref.Version, Pid: lease.PID, TtlMs: lease.TTL}}})
}

// preload lists the steps of an execution: the promises of its branch. They spare its worker a request for each, and
// nothing else, so they are [] where they cannot be read in time.
func (l *leaders) preload(ctx context.Context, own Promise) []Promise {
	branch := own.Tags[tagBranch]
	if branch == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, preloadTimeout)
	defer cancel()
	id, root := l.ids.inward(own.ID), l.ids.inward(branch)
	joint := ":"
	if strings.Contains(root, ":") {
		joint = "."
	}
	reply, err := l.read(ctx, l.partitionOf(id), &commandv1.Query{Id: id, Kind: &commandv1.Query_Promises{Promises: &perdurev1.SearchPromisesRequest{
		Namespace: l.namespace, Tags: map[string]string{tagBranch: branch}, Cursor: root + joint, Limit: maxPage}}})
	if err != nil {
		return nil
	}
	steps := slices.DeleteFunc(reply.GetPromises().GetPromises(), func(p *perdurev1.Promise) bool {
		return p.Id == id || !strings.HasPrefix(p.Id, root+joint)
	})
	return l.ids.promiseRecords(steps)
}

func (l *leaders) ReleaseTask(ctx context.Context, ref TaskRef) error {
	id := l.ids.inward(ref.ID)
	_, err := l.task(ctx, &commandv1.Command{Id: id, Kind: &commandv1.Command_ReleaseClientTask{
		ReleaseClientTask: &perdurev1.ReleaseClientTaskRequest{Namespace: l.namespace, Id: id, Version: ref.Version}}})
	return err
}

func (l *leaders) SuspendTask(ctx context.Context, ref TaskRef, awaited []string) (Suspension, error) {
	content := &perdurev1.SuspendClientTaskRequest{Namespace: l.namespace, Id: l.ids.inward(ref.ID), Version: ref.Version}
	for _, id := range awaited {
		content.Awaited = append(content.Awaited, l.ids.inward(id))
	}
	reply, err := l.task(ctx, &commandv1.Command{Id: content.Id, Kind: &commandv1.Command_SuspendClientTask{SuspendClientTask: content}})
	switch {
	case err != nil:
		return Suspension{}, err
	case len(reply.Ready) == 0:
		return Suspension{Waiting: true}, nil
	}
	own, err := l.Promise(ctx, ref.ID)
	if err != nil {
		return Suspension{}, nil //nolint:nilerr // the task stays acquired; only what spares requests is missing
	}
	return Suspension{Preload: l.preload(ctx, own)}, nil
}

func (l *leaders) FulfillTask(ctx context.Context, ref TaskRef, req Settlement) (Promise, error) {
	id := l.ids.inward(ref.ID)
	reply, err := l.task(ctx, &commandv1.Command{Id: id, Kind: &commandv1.Command_FulfillClientTask{FulfillClientTask: &perdurev1.FulfillClientTaskRequest{
		Namespace: l.namespace, Id: id, Version: ref.Version, State: stateNumber(promiseStateNames, req.State), Value: req.Value.stored()}}})
	if err != nil {
		return Promise{}, err
	}
	return l.ids.promiseRecord(reply.Promise), nil
}

// fence has a command applied that acts on a promise for the holder of a task.
func (l *leaders) fence(ctx context.Context, ref TaskRef, content *perdurev1.FenceClientTaskRequest) (*perdurev1.Promise, error) {
	content.Namespace, content.Id, content.Version = l.namespace, l.ids.inward(ref.ID), ref.Version
	reply, err := l.propose(ctx, &commandv1.Command{Id: content.Id, Kind: &commandv1.Command_FenceClientTask{FenceClientTask: content}})
	if err != nil {
		return nil, err
	}
	return reply.GetFence().GetPromise(), nil
}

func (l *leaders) FenceCreate(ctx context.Context, ref TaskRef, req NewPromise) (Promise, error) {
	p, err := l.fence(ctx, ref, &perdurev1.FenceClientTaskRequest{Action: &perdurev1.FenceClientTaskRequest_Create{Create: l.create(req)}})
	if err != nil {
		return Promise{}, err
	}
	return l.ids.promiseRecord(p), nil
}

func (l *leaders) FenceSettle(ctx context.Context, ref TaskRef, req Settlement) (*Promise, error) {
	p, err := l.fence(ctx, ref, &perdurev1.FenceClientTaskRequest{Action: &perdurev1.FenceClientTaskRequest_Settle{Settle: l.settle(req)}})
	if err != nil || p == nil {
		return nil, err
	}
	record := l.ids.promiseRecord(p)
	return &record, nil
}

func (l *leaders) Heartbeat(ctx context.Context, pid string, tasks []TaskRef) error {
	byPartition := map[uint32][]*perdurev1.ClientTaskRef{}
	for _, ref := range tasks {
		id := l.ids.inward(ref.ID)
		p := l.partitionOf(id)
		byPartition[p] = append(byPartition[p], &perdurev1.ClientTaskRef{Id: id, Version: ref.Version})
	}
	var parts errgroup.Group
	for _, refs := range byPartition {
		parts.Go(func() error {
			_, err := l.propose(ctx, &commandv1.Command{Id: refs[0].Id, Kind: &commandv1.Command_HeartbeatClientTasks{
				HeartbeatClientTasks: &perdurev1.HeartbeatClientTasksRequest{Namespace: l.namespace, Pid: pid, Tasks: refs}}})
			return err
		})
	}
	return parts.Wait()
}

func (l *leaders) HaltTask(ctx context.Context, id string) error {
	id = l.ids.inward(id)
	_, err := l.task(ctx, &commandv1.Command{Id: id, Kind: &commandv1.Command_HaltClientTask{
		HaltClientTask: &perdurev1.HaltClientTaskRequest{Namespace: l.namespace, Id: id}}})
	return err
}

func (l *leaders) ContinueTask(ctx context.Context, id string) error {
	id = l.ids.inward(id)
	_, err := l.task(ctx, &commandv1.Command{Id: id, Kind: &commandv1.Command_ContinueClientTask{
		ContinueClientTask: &perdurev1.ContinueClientTaskRequest{Namespace: l.namespace, Id: id}}})
	return err
}

func (l *leaders) SearchPromises(ctx context.Context, req Search) ([]Promise, string, error) {
	return merge(ctx, l, req, func(p Promise) string { return l.ids.inward(p.ID) }, func(ctx context.Context, p uint32, after string, limit int) ([]Promise, string, error) {
		reply, err := l.read(ctx, p, &commandv1.Query{Kind: &commandv1.Query_Promises{Promises: &perdurev1.SearchPromisesRequest{
			Namespace: l.namespace, State: stateNumber(promiseStateNames, req.State), Tags: req.Tags, Limit: uint32(limit), Cursor: after}}})
		return l.ids.promiseRecords(reply.GetPromises().GetPromises()), reply.GetPromises().GetCursor(), err
	})
}

func (l *leaders) SearchTasks(ctx context.Context, req Search) ([]Task, string, error) {
	return merge(ctx, l, req, func(t Task) string { return l.ids.inward(t.ID) }, func(ctx context.Context, p uint32, after string, limit int) ([]Task, string, error) {
		reply, err := l.read(ctx, p, &commandv1.Query{Kind: &commandv1.Query_ClientTasks{ClientTasks: &perdurev1.SearchClientTasksRequest{
			Namespace: l.namespace, State: stateNumber(taskStateNames, req.State), Limit: uint32(limit), Cursor: after}}})
		tasks := reply.GetClientTasks().GetTasks()
		out := make([]Task, len(tasks))
		for i, t := range tasks {
			out[i] = l.ids.taskRecord(t)
		}
		return out, reply.GetClientTasks().GetCursor(), err
	})
}

// schedule is the schedule of a reply.
func (l *leaders) schedule(reply interface {
	GetSchedule() *perdurev1.ScheduleResponse
}, err error) (Schedule, error) {
	if err != nil {
		return Schedule{}, err
	}
	return l.ids.scheduleRecord(reply.GetSchedule().GetSchedule()), nil
}

func (l *leaders) CreateSchedule(ctx context.Context, req NewSchedule, next func(after int64) (at int64, ok bool)) (Schedule, error) {
	first, ok := next(l.now(ctx))
	if !ok {
		return Schedule{}, bad("data.cron %q never occurs", cut(req.Cron))
	}
	id := l.ids.inward(req.ID)
	return l.schedule(l.propose(ctx, &commandv1.Command{Id: id, Kind: &commandv1.Command_CreateSchedule{CreateSchedule: &perdurev1.CreateScheduleRequest{
		Namespace: l.namespace, Id: id, Cron: req.Cron, PromiseId: req.PromiseID, PromiseTimeoutMs: req.PromiseTimeout,
		PromiseParam: req.PromiseParam.stored(), PromiseTags: req.PromiseTags, NextRunAtMs: first}}}))
}

func (l *leaders) Schedule(ctx context.Context, id string) (Schedule, error) {
	id = l.ids.inward(id)
	return l.schedule(l.read(ctx, l.partitionOf(id), &commandv1.Query{Id: id, Kind: &commandv1.Query_Schedule{
		Schedule: &perdurev1.GetScheduleRequest{Namespace: l.namespace, Id: id}}}))
}

func (l *leaders) DeleteSchedule(ctx context.Context, id string) error {
	id = l.ids.inward(id)
	_, err := l.propose(ctx, &commandv1.Command{Id: id, Kind: &commandv1.Command_DeleteSchedule{
		DeleteSchedule: &perdurev1.DeleteScheduleRequest{Namespace: l.namespace, Id: id}}})
	return err
}

func (l *leaders) SearchSchedules(ctx context.Context, req Search) ([]Schedule, string, error) {
	return merge(ctx, l, req, func(s Schedule) string { return l.ids.inward(s.ID) }, func(ctx context.Context, p uint32, after string, limit int) ([]Schedule, string, error) {
		reply, err := l.read(ctx, p, &commandv1.Query{Kind: &commandv1.Query_Schedules{Schedules: &perdurev1.SearchSchedulesRequest{
			Namespace: l.namespace, PromiseTags: req.Tags, Limit: uint32(limit), Cursor: after}}})
		found := reply.GetSchedules().GetSchedules()
		out := make([]Schedule, len(found))
		for i, s := range found {
			out[i] = l.ids.scheduleRecord(s)
		}
		return out, reply.GetSchedules().GetCursor(), err
	})
}

// merge reads one page of every partition and returns the page of all, ascending by stored id.
func merge[T any](ctx context.Context, l *leaders, req Search, key func(T) string,
	read func(ctx context.Context, partition uint32, after string, limit int) ([]T, string, error)) ([]T, string, error) {
	pages := make([][]T, l.router.Partitions())
	cursors := make([]string, l.router.Partitions())
	parts, ctx := errgroup.WithContext(ctx)
	for p := range pages {
		parts.Go(func() error {
			after := l.ids.inward(req.After)
			for range searchReads {
				part, cursor, err := read(ctx, uint32(p), after, req.Limit-len(pages[p]))
				if err != nil {
					return err
				}
				pages[p], cursors[p], after = append(pages[p], part...), cursor, cursor
				if cursor == "" || len(pages[p]) >= req.Limit {
					break
				}
			}
			return nil
		})
	}
	if err := parts.Wait(); err != nil {
		return nil, "", err
	}
	page, cursor := partition.MergePages(pages, cursors, key, req.Limit)
	return page, l.ids.outward(cursor), nil
}
