package group

import (
	"bytes"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/internal/callstream/async"
	"perdure/partition/admission"
	"perdure/partition/quota"
)

// proposal is one command on its way into the log, and the callers that wait for its outcome. The lock of its
// pending guards all fields but done and result.
type proposal struct {
	cmd *commandv1.Command
	// lead is the leadership that took the command. No later one proposes it: its caller may have asked
	// another leader since, and may have acted on a refusal.
	lead     *leadership
	reserved admission.Reservation
	charge   quota.Charge
	// seq orders the proposals of a replica as they came.
	seq uint64
	// waiting counts the callers that still wait.
	waiting int
	// lane is where it is queued.
	lane lane
	// launched: the log may have it.
	launched bool

	// notify are notified once result is set.
	notify []async.Notifier

	// done is closed once result is set.
	done   chan struct{}
	result proposalResult
}

type proposalResult struct {
	reply *commandv1.Reply
	err   *api.Error
}

// lane is a queue of pending. Small commands do not wait for all large ones before them.
type lane uint8

const (
	small    lane = iota // at most maxEntryBytes
	large                // larger: waits until bulk admits it
	admitted             // large and admitted by bulk: travels alone
	lanes
)

// pending holds the proposals of a replica from the call to the answer: a queue in lanes, and those in
// flight. Its loop is
//
//	p, joined, err := q.add(cmd, lead, reserved) // callers
//	q.admit(q.firstLarge())                // large ones, when bulk admits them
//	ok := q.await(n, lead)                 // the proposer: wait for wake until so many are queued
//	batch := q.take()                      // the commands of one entry
//	q.answer(p, result)                    // the resolver, once for each
//
//	len(queue) <= limit for commands that begin work, <= limit + limit/4 + 1 for those that finish it
type pending struct {
	admission *admission.Pool
	bulk      *bulk
	limit     int
	// wake gets a value when the proposer's await is met, wakeLarge when a large one is queued.
	wake, wakeLarge chan struct{}

	mu    sync.Mutex
	seq   uint64
	queue [lanes][]*proposal
	// bytes are those of the queued commands.
	bytes [lanes]int64
	// enough and lead are those of the proposer's latest await.
	enough int
	lead   *leadership
	// last is the lane that the previous entry began with.
	last lane
	// requests are the proposals queued or in flight, by request id.
	requests map[string]*proposal
}

func newPending(limit int, pool *admission.Pool, bulk *bulk) *pending {
	return &pending{admission: pool, bulk: bulk, limit: limit, wake: make(chan struct{}, 1), wakeLarge: make(chan struct{}, 1), requests: map[string]*proposal{}}
}

// sameRequest reports whether two commands are attempts of one request: equal but for its age.
func sameRequest(a, b *commandv1.Command) bool {
	if a.Request == nil || b.Request == nil || !bytes.Equal(a.Request.Id, b.Request.Id) {
		return false
	}
	with := func(c *commandv1.Command) *commandv1.Command {
		return &commandv1.Command{Namespace: c.Namespace, Id: c.Id, SlotEpoch: c.SlotEpoch, Kind: c.Kind}
	}
	return proto.Equal(with(a), with(b))
}

// add queues a command whose bytes are reserved. If the same request is queued or in flight under the same
// leadership, the caller joins it: both wait for one outcome, and the log gets the command once. A caller
// that has joined releases its own reservation; otherwise answer or leave does. ok is false when too many
// commands wait.
func (q *pending) add(cmd *commandv1.Command, lead *leadership, reserved admission.Reservation, charge quota.Charge) (p *proposal, joined, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := string(cmd.GetRequest().GetId())
	if p := q.requests[id]; id != "" && p != nil && p.lead == lead && sameRequest(p.cmd, cmd) {
		p.waiting++
		return p, true, true
	}
	most := q.limit
	if reserved.FinishesWork() {
		most += q.limit/4 + 1
	}
	if q.lenLocked() >= most {
		return nil, false, false
	}
	q.seq++
	p = &proposal{cmd: cmd, lead: lead, reserved: reserved, charge: charge, seq: q.seq, waiting: 1, done: make(chan struct{})}
	if reserved.Bytes() > maxEntryBytes {
		p.lane = large
		q.bulk.waiting.Add(1)
		notify(q.wakeLarge)
	}
	q.queue[p.lane] = append(q.queue[p.lane], p)
	q.bytes[p.lane] += reserved.Bytes()
	if p.lane != large && q.metLocked() {
		notify(q.wake)
	}
	if id != "" && q.requests[id] == nil {
		q.requests[id] = p
	}
	return p, false, true
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// firstLarge returns the large proposal that has waited the longest for admission, nil if none waits.
func (q *pending) firstLarge() *proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue[large]) == 0 {
		return nil
	}
	return q.queue[large][0]
}

// admit lets a large proposal through to the proposer. It reports whether it still waited for that.
func (q *pending) admit(p *proposal) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.queue[large], p)
	if at < 0 {
		return false
	}
	q.queue[large] = slices.Delete(q.queue[large], at, at+1)
	q.bulk.waiting.Add(-1)
	q.bytes[large] -= p.reserved.Bytes()
	p.lane = admitted
	q.queue[admitted] = append(q.queue[admitted], p)
	q.bytes[admitted] += p.reserved.Bytes()
	notify(q.wake)
	return true
}

// leave ends one caller's wait. It drops the proposal, and returns true, if no other caller waits for it and
// it is neither launched nor finished. A dropped proposal never reaches the log, so no replica applies it.
func (q *pending) leave(p *proposal) (dropped bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.waiting--; p.waiting > 0 || p.launched || p.finished() {
		return false
	}
	if p.lane == large {
		q.bulk.waiting.Add(-1)
	}
	q.queue[p.lane] = slices.DeleteFunc(q.queue[p.lane], func(x *proposal) bool { return x == p })
	q.bytes[p.lane] -= p.reserved.Bytes()
	close(p.done)
	q.settleLocked(p)
	return true
}

func (p *proposal) finished() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// take removes the commands of the next entry from the queue and marks them launched. All came under one leadership.
// Within the bounds of an entry they come in the order of their arrival. A large one travels alone, once admitted. When
// both lanes wait, they alternate.
func (q *pending) take() []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := small
	switch {
	case len(q.queue[admitted]) == 0:
	case len(q.queue[small]) == 0, q.last == small:
		from = admitted
	}
	q.last = from
	var batch []*proposal
	size := int64(0)
	for len(q.queue[from]) > 0 && len(batch) < maxEntryCommands && size < maxEntryBytes &&
		(len(batch) == 0 || q.queue[from][0].lead == batch[0].lead) {
		p := q.queue[from][0]
		q.queue[from][0] = nil
		q.queue[from] = q.queue[from][1:]
		q.bytes[from] -= p.reserved.Bytes()
		p.launched = true
		batch = append(batch, p)
		size += p.reserved.Bytes()
	}
	return batch
}

// drain removes everything that is queued.
func (q *pending) drain() []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []*proposal
	q.bulk.waiting.Add(-int64(len(q.queue[large])))
	for i := range q.queue {
		for _, p := range q.queue[i] {
			p.launched = true
		}
		all = append(all, q.queue[i]...)
		q.queue[i], q.bytes[i] = nil, 0
	}
	return all
}

// answer gives all callers of a proposal its outcome. It does not block.
func (q *pending) answer(p *proposal, reply *commandv1.Reply, err *api.Error) {
	q.mu.Lock()
	p.result = proposalResult{reply, err}
	close(p.done)
	q.settleLocked(p)
	notify := p.notify
	q.mu.Unlock()
	for _, n := range notify {
		n.Notify()
	}
}

// settleLocked forgets a proposal that is over and returns its bytes.
func (q *pending) settleLocked(p *proposal) {
	if id := string(p.cmd.GetRequest().GetId()); id != "" && q.requests[id] == p {
		delete(q.requests, id)
	}
	q.admission.Release(p.reserved)
	p.charge.Release()
}

// len is how many commands are queued.
func (q *pending) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lenLocked()
}

func (q *pending) lenLocked() int {
	return len(q.queue[small]) + len(q.queue[large]) + len(q.queue[admitted])
}

// lenOf is how many commands are queued in a lane.
func (q *pending) lenOf(l lane) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue[l])
}

// await reports whether an entry is to be made: enough small commands are queued, or they fill an entry, or a large one
// is admitted. Commands of another leadership than lead never wait. If it is not met, wake gets a value once it is.
func (q *pending) await(enough int, lead *leadership) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enough, q.lead = enough, lead
	return q.metLocked()
}

func (q *pending) metLocked() bool {
	for _, l := range []lane{small, admitted} {
		if len(q.queue[l]) > 0 && q.queue[l][0].lead != q.lead {
			return true
		}
	}
	if q.enough == noEntry {
		return false
	}
	return len(q.queue[small]) >= q.enough || q.bytes[small] >= maxEntryBytes || len(q.queue[admitted]) > 0
}
