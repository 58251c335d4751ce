package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// The commands of clients of the recovery protocol.

func clientCmd(kind any) *commandv1.Command {
	cmd := &commandv1.Command{Namespace: ns}
	switch k := kind.(type) {
	case *perdurev1.CreateClientPromiseRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_CreateClientPromise{CreateClientPromise: k}
	case *perdurev1.SettleClientPromiseRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_SettleClientPromise{SettleClientPromise: k}
	case *perdurev1.RegisterCallbackRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_RegisterCallback{RegisterCallback: k}
	case *perdurev1.RegisterListenerRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_RegisterListener{RegisterListener: k}
	case *perdurev1.CreateClientTaskRequest:
		cmd.Id, cmd.Kind = k.Promise.Id, &commandv1.Command_CreateClientTask{CreateClientTask: k}
	case *perdurev1.AcquireClientTaskRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_AcquireClientTask{AcquireClientTask: k}
	case *perdurev1.ReleaseClientTaskRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_ReleaseClientTask{ReleaseClientTask: k}
	case *perdurev1.SuspendClientTaskRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_SuspendClientTask{SuspendClientTask: k}
	case *perdurev1.FulfillClientTaskRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_FulfillClientTask{FulfillClientTask: k}
	case *perdurev1.FenceClientTaskRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_FenceClientTask{FenceClientTask: k}
	case *perdurev1.HeartbeatClientTasksRequest:
		if len(k.Tasks) > 0 {
			cmd.Id = k.Tasks[0].Id
		}
		cmd.Kind = &commandv1.Command_HeartbeatClientTasks{HeartbeatClientTasks: k}
	case *perdurev1.HaltClientTaskRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_HaltClientTask{HaltClientTask: k}
	case *perdurev1.ContinueClientTaskRequest:
		cmd.Id, cmd.Kind = k.Id, &commandv1.Command_ContinueClientTask{ContinueClientTask: k}
	case *commandv1.UnblocksDelivered:
		cmd.Namespace, cmd.Kind = "", &commandv1.Command_UnblocksDelivered{UnblocksDelivered: k}
	default:
		panic(fmt.Sprintf("no command of %T", kind))
	}
	return cmd
}

const worker = "poll://any@g"

// clientPromise makes a promise with tags, given as key and value in turns.
func clientPromise(objectID string, timeoutAt int64, tags ...string) *perdurev1.CreateClientPromiseRequest {
	req := &perdurev1.CreateClientPromiseRequest{Id: objectID, TimeoutAtMs: timeoutAt, Tags: map[string]string{},
		Param: &perdurev1.Value{Data: []byte("in")}}
	for i := 0; i < len(tags); i += 2 {
		req.Tags[tags[i]] = tags[i+1]
	}
	return req
}

func acquire(objectID string, version uint64) *perdurev1.AcquireClientTaskRequest {
	return &perdurev1.AcquireClientTaskRequest{Id: objectID, Version: version, Pid: "p", TtlMs: 1000}
}

func showClientTask(t *perdurev1.ClientTask) string {
	s := fmt.Sprintf("%s %s v%d", t.Id, strings.ToLower(strings.TrimPrefix(t.State.String(), "TASK_STATE_")), t.Version)
	if t.Pid != "" || t.TtlMs != 0 {
		s += fmt.Sprintf(" %s/%d until %d", t.Pid, t.TtlMs, t.LeaseAtMs)
	}
	if t.RetryAtMs != 0 {
		s += fmt.Sprintf(" retry %d", t.RetryAtMs)
	}
	if len(t.Resumes) > 0 {
		s += fmt.Sprint(" ", t.Resumes)
	}
	return s
}

// messagesOf lists what an entry sends to addresses.
func messagesOf(fx *Effects) (out []string) {
	for _, e := range fx.Executed {
		out = append(out, fmt.Sprintf("execute %s v%d at %s", e.ID, e.Version, e.Address))
	}
	for _, u := range fx.Unblocked {
		out = append(out, fmt.Sprintf("unblock %s %s at %s", u.ID, u.Promise.State, u.Address))
	}
	return out
}

// step applies one command, and checks what it tells.
func (w *world) step(kind any, want ...string) *commandv1.Reply {
	w.t.Helper()
	cmd := clientCmd(kind)
	p := w.parts[0]
	if cmd.Id != "" {
		p = w.at(cmd.Id)
	}
	res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
	reply := res.Replies[len(res.Replies)-1]
	if e := wire.ReplyError(reply); e != nil {
		w.t.Fatalf("%v: %v", cmd, e)
	}
	if got := messagesOf(&res.Effects); !slices.Equal(got, want) {
		w.t.Fatalf("%v tells %q, must tell %q", cmd, got, want)
	}
	return reply
}

func (w *world) clientTask(objectID string) *perdurev1.ClientTaskResponse {
	w.t.Helper()
	reply := w.query(&commandv1.Query{Id: objectID, Kind: &commandv1.Query_ClientTask{ClientTask: &perdurev1.GetClientTaskRequest{}}})
	if e := wire.QueryError(reply); e != nil {
		w.t.Fatalf("task %s: %v", objectID, e)
	}
	return reply.GetClientTask()
}

func (w *world) taskIs(objectID, want string) {
	w.t.Helper()
	if got := showClientTask(w.clientTask(objectID).Task); got != want {
		w.t.Fatalf("task %s, must be %s", got, want)
	}
}

// messages lists what waits for an address, page by page.
func (w *world) messages(p *part, address string, below bool) (out []string) {
	w.t.Helper()
	req := &commandv1.MessagesQuery{Address: address, Below: below, Limit: 1}
	page := func() *commandv1.MessagesReply {
		reply, err := query.Answer(p.state, 0, &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_Messages{Messages: req}})
		if err != nil {
			w.t.Fatalf("messages: %v", err)
		}
		return reply.GetMessages()
	}
	for more := true; more; more = len(req.ExecuteCursor) > 0 {
		got := page()
		for _, e := range got.Executes {
			out = append(out, fmt.Sprintf("execute %s v%d at %s", e.Id, e.Version, e.Address))
		}
		req.ExecuteCursor = got.ExecuteCursor
	}
	for more := true; more; more = len(req.UnblockCursor) > 0 {
		got := page()
		for _, u := range got.Unblocks {
			out = append(out, fmt.Sprintf("unblock %s at %s", u.Promise.Id, u.Address))
		}
		req.UnblockCursor = got.UnblockCursor
	}
	return out
}

// rows counts the keys of some families.
func rows(p *part, families ...keys.Family) (n int) {
	for _, f := range families {
		n += count(p.state, []byte{byte(f)})
	}
	return n
}

// A client's promise with a target is told to its address, acquired, and fulfilled.
func TestClientTask(t *testing.T) {
	w := newWorld(t, 1)
	p := w.parts[0]
	create := clientPromise("r", 100_000, state.TagTarget, worker, "k", "v")
	made := w.step(create, "execute r v0 at "+worker).GetPromise().Promise
	if made.Address != worker || len(made.Tags) != 2 || made.Tags["k"] != "v" || string(made.Param) != "in" || made.TimeoutAtMs != 100_000 {
		t.Fatalf("made %v", made)
	}
	w.step(create) // again
	w.taskIs("r", "r pending v0 retry 31000")
	if got := w.messages(p, worker, false); !slices.Equal(got, []string{"execute r v0 at " + worker}) {
		t.Errorf("waiting: %q", got)
	}
	w.now = 2000
	got := w.step(acquire("r", 0)).GetClientTask()
	if showClientTask(got.Task) != "r acquired v1 p/1000 until 3000" || string(got.Promise.Param) != "in" {
		t.Errorf("acquired %v", got)
	}
	if got := w.messages(p, worker, false); len(got) != 0 {
		t.Errorf("waiting when acquired: %q", got)
	}
	w.refused(clientCmd(acquire("r", 0)), perdurev1.Reason_REASON_STALE_TASK)
	w.refused(clientCmd(acquire("none", 0)), perdurev1.Reason_REASON_PROMISE_NOT_FOUND)
	w.step(&perdurev1.RegisterListenerRequest{Id: "r", Address: "poll://uni@g/c"})
	w.refused(clientCmd(&perdurev1.FulfillClientTaskRequest{Id: "r", Version: 2, State: resolve}), perdurev1.Reason_REASON_STALE_TASK)
	done := w.step(&perdurev1.FulfillClientTaskRequest{Id: "r", Version: 1, State: resolve,
		Value: &perdurev1.Value{Data: []byte("text"), Form: perdurev1.DataForm_DATA_FORM_TEXT, Headers: map[string]string{"h": "x"}}},
		"unblock r resolved at poll://uni@g/c").GetClientTask()
	value := done.Promise.Value
	if showClientTask(done.Task) != "r fulfilled v1" || string(value.GetValue()) != "text" || value.Form != perdurev1.DataForm_DATA_FORM_TEXT || value.Headers["h"] != "x" {
		t.Errorf("fulfilled %v", done)
	}
	if got := w.messages(p, "poll://uni@g", true); !slices.Equal(got, []string{"unblock r at poll://uni@g/c"}) {
		t.Errorf("waiting: %q", got)
	}
	w.step(&commandv1.UnblocksDelivered{Unblocks: []*commandv1.UnblockRef{{Namespace: ns, Id: "r", Address: "poll://uni@g/c"}, {Namespace: ns, Id: "none", Address: "x"}}})
	if got := w.messages(p, "poll://uni@g", true); len(got) != 0 {
		t.Errorf("waiting after the delivery: %q", got)
	}
	if n := rows(p, keys.Unblock, keys.Deadline, keys.Ready, keys.Listener); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
