package resonate

import (
	"context"
	"encoding/json"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/wire"
)

// Snap is everything that a sandbox has at one time, as the protocol shows it: each list ascends by id, or by id and
// address. Messages are what addresses are still to be told: the executes of pending tasks, and the unblocks that no
// stream or target has taken.
type Snap struct {
	Promises        []Promise      `json:"promises"`
	PromiseTimeouts []SnapTimeout  `json:"promiseTimeouts"`
	Callbacks       []SnapCallback `json:"callbacks"`
	Listeners       []SnapListener `json:"listeners"`
	Tasks           []Task         `json:"tasks"`
	TaskTimeouts    []SnapTimer    `json:"taskTimeouts"`
	Messages        []SnapMessage  `json:"messages"`
}

// SnapTimeout is the deadline of a promise, in Unix milliseconds.
type SnapTimeout struct {
	ID      string `json:"id"`
	Timeout int64  `json:"timeout"`
}

// SnapCallback says that a task waits for a promise.
type SnapCallback struct {
	Awaiter string `json:"awaiter"`
	Awaited string `json:"awaited"`
}

// SnapListener says that an address is to be told of a promise.
type SnapListener struct {
	ID      string `json:"id"`
	Address string `json:"address"`
}

// SnapTimer is a timer of a task: of type 0 its retry's, of type 1 its lease's.
type SnapTimer struct {
	ID      string `json:"id"`
	Type    int    `json:"type"`
	Timeout int64  `json:"timeout"`
}

// SnapMessage is a message for an address.
type SnapMessage struct {
	Address string          `json:"address"`
	Message json.RawMessage `json:"message"`
}

// snapPage is how many promises one query of a snapshot reads.
const snapPage = 1000

// Snap shows the sandbox at the time of ctx.
func (s *Sandbox) Snap(ctx context.Context) (*Snap, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.stamp(ctx); at > s.term.machine.Clock() {
		if _, err := s.term.apply(at); err != nil {
			return nil, err
		}
	}
	out := &Snap{Promises: []Promise{}, PromiseTimeouts: []SnapTimeout{}, Callbacks: []SnapCallback{}, Listeners: []SnapListener{},
		Tasks: []Task{}, TaskTimeouts: []SnapTimer{}, Messages: []SnapMessage{}}
	settled := map[string]*perdurev1.Promise{}
	var unblocks []*commandv1.UnblockRef
	for cursor, more := []byte(nil), true; more; more = len(cursor) > 0 {
		reply, err := s.term.ask(&commandv1.Query{Namespace: s.opts.Namespace, Kind: &commandv1.Query_Snapshot{
			Snapshot: &commandv1.SnapshotQuery{Limit: snapPage, Cursor: cursor}}})
		if err != nil {
			return nil, err
		}
		if refused := wire.QueryError(reply); refused != nil {
			return nil, refused
		}
		page := reply.GetSnapshot()
		if err := out.add(s.store.ids, page); err != nil {
			return nil, err
		}
		for _, p := range page.Promises {
			settled[p.Id] = p
		}
		unblocks, cursor = append(unblocks, page.Unblocks...), page.Cursor
	}
	for _, u := range unblocks {
		if settled[u.Id] == nil {
			continue // purged since
		}
		if err := out.message(s.store.ids, &commandv1.AddressMessage{Address: u.Address, Kind: &commandv1.AddressMessage_Unblock{Unblock: settled[u.Id]}}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// add adds a page of a snapshot.
func (x *Snap) add(c ids, page *commandv1.SnapshotReply) error {
	x.Promises = append(x.Promises, c.promiseRecords(page.Promises)...)
	for _, t := range page.PromiseTimers {
		x.PromiseTimeouts = append(x.PromiseTimeouts, SnapTimeout{c.outward(t.Id), t.AtMs})
	}
	for _, pair := range page.Callbacks {
		x.Callbacks = append(x.Callbacks, SnapCallback{Awaiter: c.outward(pair.First), Awaited: c.outward(pair.Second)})
	}
	for _, pair := range page.Listeners {
		x.Listeners = append(x.Listeners, SnapListener{ID: c.outward(pair.First), Address: pair.Second})
	}
	for _, t := range page.Tasks {
		x.Tasks = append(x.Tasks, c.taskRecord(t))
	}
	for _, t := range page.TaskTimers {
		timer := SnapTimer{ID: c.outward(t.Id), Timeout: t.AtMs}
		if t.Lease {
			timer.Type = 1
		}
		x.TaskTimeouts = append(x.TaskTimeouts, timer)
	}
	for _, e := range page.Executes {
		if err := x.message(c, &commandv1.AddressMessage{Address: e.Address, Kind: &commandv1.AddressMessage_Execute{
			Execute: &commandv1.AddressExecute{Id: e.Id, Version: e.Version}}}); err != nil {
			return err
		}
	}
	return nil
}

func (x *Snap) message(c ids, m *commandv1.AddressMessage) error {
	encoded, err := c.encodeMessage(m)
	if err != nil {
		return err
	}
	x.Messages = append(x.Messages, SnapMessage{Address: m.Address, Message: encoded})
	return nil
}
