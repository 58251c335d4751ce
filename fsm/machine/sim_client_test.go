package machine

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
)

// Clients of the recovery protocol in the simulation: their promises, tasks and schedules beside executions and
// entities, through ticks, restarts and cuts. Commands are late and repeated, with the versions that tasks had when they were
// sent. TestClientsAgainstReference says what each answers; here all objects of a partition keep their rules together.

// simClientKinds are what clients do; each must succeed now and then.
var simClientKinds = []string{"create", "create task", "acquire", "acquire", "release", "suspend", "suspend", "fulfill", "fence", "heartbeat", "settle",
	"callback", "listen", "halt", "continue", "delivered", "create schedule", "advance schedule", "delete schedule"}

// actClient lets clients send commands, now and then twice.
func (s *simulation) actClient() {
	for range 1 + s.draw(8) {
		s.clientSends()
	}
}

func (s *simulation) clientSends() {
	if s.draw(60) == 0 {
		s.clientIDs++ // most of the former ones have ended
	}
	kind := simClientKinds[s.draw(len(simClientKinds))]
	objectID := s.clientObject(kind)
	cmd := s.clientCommand(kind, id.Origin(objectID), objectID)
	p := s.draw(len(s.parts))
	if cmd.Id != "" {
		p = s.placed(cmd)
	}
	for range 1 + s.draw(2) {
		s.send(p, proto.CloneOf(cmd), func(r *commandv1.Reply) { s.clientAnswered(kind, cmd, r) })
	}
}

// clientObject is a present id: most often of a task in the state that a command starts from.
func (s *simulation) clientObject(kind string) string {
	from := map[string]perdurev1.TaskState{"acquire": perdurev1.TaskState_TASK_STATE_PENDING, "halt": perdurev1.TaskState_TASK_STATE_PENDING,
		"release": perdurev1.TaskState_TASK_STATE_ACQUIRED, "suspend": perdurev1.TaskState_TASK_STATE_ACQUIRED,
		"fulfill": perdurev1.TaskState_TASK_STATE_ACQUIRED, "fence": perdurev1.TaskState_TASK_STATE_ACQUIRED,
		"heartbeat": perdurev1.TaskState_TASK_STATE_ACQUIRED, "continue": perdurev1.TaskState_TASK_STATE_HALTED}
	var all, fit []string
	for i := range 3 {
		for _, path := range []string{"", ":0", ":1"} {
			objectID := fmt.Sprintf("client-%d-%d%s", s.clientIDs, i, path)
			all = append(all, objectID)
			if want := from[kind]; want != 0 && s.clientTaskOf(objectID).GetState() == want {
				fit = append(fit, objectID)
			}
		}
	}
	if len(fit) > 0 && s.draw(5) > 0 {
		return fit[s.draw(len(fit))]
	}
	return all[s.draw(len(all))]
}

// clientAnswered counts an answer. Refusals have the protocol's reasons.
func (s *simulation) clientAnswered(kind string, cmd *commandv1.Command, r *commandv1.Reply) {
	s.t.Helper()
	switch e := wire.ReplyError(r); {
	case e == nil && kind == "heartbeat":
		s.stats.protocol[kind] += len(r.GetClientHeartbeat().GetHeld())
	case e == nil:
		s.stats.protocol[kind]++
	case codeOf(e) == 0:
		s.t.Fatalf("%v: %v", cmd, e)
	}
}

// clientCommand is a command of a client about an object of a call tree.
func (s *simulation) clientCommand(kind, root, objectID string) *commandv1.Command {
	child := s.clientChild(root, objectID)
	task, version := s.clientTaskNow(objectID)
	value := &perdurev1.Value{Data: []byte(kind), Headers: map[string]string{"h": "x"}}
	pid := fmt.Sprint("p", s.draw(2))
	if task.GetPid() != "" && s.draw(6) > 0 {
		pid = task.Pid
	}
	switch kind {
	case "create":
		return clientCmd(s.newClientPromise(objectID))
	case "create task":
		req := s.newClientPromise(root)
		req.Tags[state.TagTarget] = worker
		delete(req.Tags, state.TagDelay)
		return clientCmd(&perdurev1.CreateClientTaskRequest{Promise: req, Pid: pid, TtlMs: int64(1 + s.draw(60_000))})
	case "acquire":
		return clientCmd(&perdurev1.AcquireClientTaskRequest{Id: objectID, Version: version, Pid: pid, TtlMs: int64(1 + s.draw(60_000))})
	case "release":
		return clientCmd(&perdurev1.ReleaseClientTaskRequest{Id: objectID, Version: version})
	case "suspend":
		return clientCmd(&perdurev1.SuspendClientTaskRequest{Id: objectID, Version: version, Awaited: []string{child}})
	case "fulfill":
		return clientCmd(&perdurev1.FulfillClientTaskRequest{Id: objectID, Version: version, State: resolve, Value: value})
	case "fence":
		req := &perdurev1.FenceClientTaskRequest{Id: objectID, Version: version, Action: &perdurev1.FenceClientTaskRequest_Create{Create: s.newClientPromise(child)}}
		if s.draw(2) == 0 {
			req.Action = &perdurev1.FenceClientTaskRequest_Settle{Settle: &perdurev1.SettleClientPromiseRequest{Id: child, State: resolve, Value: value}}
		}
		return clientCmd(req)
	case "heartbeat":
		return clientCmd(&perdurev1.HeartbeatClientTasksRequest{Pid: pid, Tasks: []*perdurev1.ClientTaskRef{{Id: objectID, Version: version}, {Id: root, Version: version}}})
	case "settle":
		return clientCmd(&perdurev1.SettleClientPromiseRequest{Id: objectID, State: perdurev1.PromiseState(2 + s.draw(3)), Value: value})
	case "callback":
		return clientCmd(&perdurev1.RegisterCallbackRequest{Id: child, Awaiter: root})
	case "listen":
		return clientCmd(&perdurev1.RegisterListenerRequest{Id: objectID, Address: listener})
	case "halt":
		return clientCmd(&perdurev1.HaltClientTaskRequest{Id: objectID})
	case "continue":
		return clientCmd(&perdurev1.ContinueClientTaskRequest{Id: objectID})
	case "delivered":
		return clientCmd(&commandv1.UnblocksDelivered{Unblocks: []*commandv1.UnblockRef{{Namespace: ns, Id: objectID, Address: listener}}})
	}
	return s.scheduleCommand(kind, fmt.Sprint("schedule-", s.draw(3)))
}

// clientChild is an id below a root: most often of another promise that is pending and may be awaited.
func (s *simulation) clientChild(root, objectID string) string {
	all, pending := []string{root + ":0", root + ":1", root + ":2"}, []string{}
	for _, child := range all {
		reply := s.query(&commandv1.Query{Id: child, Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}})
		if p := reply.GetPromise().GetPromise(); p.GetState() == perdurev1.PromiseState_PROMISE_STATE_PENDING && len(p.Tags) > 0 && child != objectID {
			pending = append(pending, child)
		}
	}
	if len(pending) > 0 && s.draw(5) > 0 {
		return pending[s.draw(len(pending))]
	}
	return all[s.draw(len(all))]
}

// newClientPromise is a promise as a client makes it: with a target, for a timer, for settlement from outside, or none of these.
func (s *simulation) newClientPromise(objectID string) *perdurev1.CreateClientPromiseRequest {
	req := clientPromise(objectID, s.now+int64(s.draw([]int{2_000, 200_000, 200_000}[s.draw(3)])))
	switch s.draw(6) {
	case 0:
		req.Tags[state.TagTimer] = "true"
	case 1, 2:
		req.Tags[state.TagExternal] = "true"
	default:
		req.Tags[state.TagTarget] = []string{worker, worker + "/p0", "http://h/x"}[s.draw(3)]
		if s.draw(6) == 0 {
			req.Tags[state.TagDelay] = fmt.Sprint(s.now + int64(s.draw(5_000)))
		}
	}
	return req
}

// clientTaskNow is a client's task as it is applied, and most often its version.
func (s *simulation) clientTaskNow(objectID string) (*perdurev1.ClientTask, uint64) {
	task := s.clientTaskOf(objectID)
	if s.draw(8) == 0 {
		return task, uint64(s.draw(3))
	}
	return task, task.GetVersion()
}

func (s *simulation) clientTaskOf(objectID string) *perdurev1.ClientTask {
	reply := s.query(&commandv1.Query{Id: objectID, Kind: &commandv1.Query_ClientTask{ClientTask: &perdurev1.GetClientTaskRequest{}}})
	return reply.GetClientTask().GetTask()
}

// scheduleCommand is a command about a schedule: of a client, or of a leader that runs it.
func (s *simulation) scheduleCommand(kind, scheduleID string) *commandv1.Command {
	switch kind {
	case "create schedule":
		return scheduleCmd(everyMinute(scheduleID, s.now+int64(s.draw(10_000))))
	case "delete schedule":
		return scheduleCmd(&perdurev1.DeleteScheduleRequest{Id: scheduleID})
	}
	reply := s.query(&commandv1.Query{Id: scheduleID, Kind: &commandv1.Query_Schedule{Schedule: &perdurev1.GetScheduleRequest{Id: scheduleID}}})
	now := reply.GetSchedule().GetSchedule()
	return scheduleCmd(&perdurev1.AdvanceScheduleRequest{Id: scheduleID, Incarnation: now.GetIncarnation(), RanAtMs: now.GetNextRunAtMs(),
		NextRunAtMs: now.GetNextRunAtMs() + int64(1+s.draw(60_000))})
}
