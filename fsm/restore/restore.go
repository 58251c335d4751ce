// Package restore turns the states of all partitions of one cut into those of a new cluster, which may have another
// number of partitions. It is pure: it reads states and returns rows, and stores nothing.
//
// A row goes to the partition that owns its object's id in the new cluster. What belongs to the old cluster and not to
// an object is made new:
//
//   - A message that its receiver's state has is dropped. Every other one gets a number in the channel between the new
//     partitions of its two ends. Messages between the same two call trees keep their order. One whose ends are in the
//     same partition now goes to an outbox of the partition itself, which its machine delivers.
//   - A lease has ended: its task is acquired by nobody at the next version, and the first tick gives it to a worker.
//   - Incarnations are indexes of logs. Base is above all of them, and the new machines add it to their indexes.
//   - A stored reply does not name its object. It goes to each new partition that shares a slot with its old one.
//   - A function was registered in the new partitions if it was in an old one.
//
// The rows of an object follow each other as in its state: what an index names comes before the index. The same states
// give the same rows in the same order, so an interrupted restore is repeated.
//
//	plan, err := restore.New(states, partitions)
//	err = plan.Rows(func(partition uint32, row state.Write) error { … Import … })
//	for p := range partitions { … plan.Done(p) … ImportDone … }
package restore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/cut"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/recovery"
)

// Rows of Plan that end a lease have this time.
const leaseEnded int64 = 1

// Plan is one restore. It is not safe for concurrent use.
type Plan struct {
	sources []state.Reader
	count   uint32
	// channels are those of the old cluster, by source and destination.
	channels [][]cut.Channel
	epoch    uint64
	base     uint64
	clock    int64
	level    uint64
	// evicted is, by new partition, up to when stored replies may be missing.
	evicted []uint64
	// functions are the registered ones, in the order of their first occurrence, by the keys of their rows.
	functions map[string]state.Digests
	names     []string
}

// New reads what a restore of the states of all partitions, in the order of their numbers, needs of all of them. The
// error says which states are not of one cut, or comes from the storage.
func New(sources []state.Reader, partitions uint32) (*Plan, error) {
	if len(sources) == 0 || partitions == 0 {
		return nil, fmt.Errorf("restore of %d partitions into %d", len(sources), partitions)
	}
	p := &Plan{sources: sources, count: partitions, functions: map[string]state.Digests{}, evicted: make([]uint64, partitions)}
	for n, r := range sources {
		if err := p.meta(uint32(n), r); err != nil {
			return nil, fmt.Errorf("partition %d: %w", n, err)
		}
		if err := p.registered(r); err != nil {
			return nil, fmt.Errorf("partition %d: %w", n, err)
		}
	}
	return p, p.connect()
}

// meta reads one state's own values.
func (p *Plan) meta(n uint32, r state.Reader) error {
	var of [5]uint64
	for i, name := range []string{state.MetaApplied, state.MetaBase, state.MetaClock, state.MetaFeature, state.MetaEvicted} {
		var err error
		if of[i], err = state.MetaNumber(r, name); err != nil {
			return err
		}
	}
	if importing, err := state.MetaNumber(r, state.MetaImporting); err != nil || importing != 0 {
		return errors.Join(err, errors.New("its own restore was not finished"))
	}
	if err := state.CheckLevel(r); err != nil {
		return err
	}
	p.base = max(p.base, of[0]+of[1])
	p.clock = max(p.clock, int64(of[2]))
	p.level = max(p.level, of[3])
	for q := range p.count {
		if p.shares(n, q) {
			p.evicted[q] = max(p.evicted[q], of[4])
		}
	}
	return nil
}

// shares reports whether an old and a new partition have a slot in common.
func (p *Plan) shares(before, after uint32) bool {
	first := func(n, of int) int { return (n*id.Slots + of - 1) / of }
	a, b := int(before), int(after)
	return first(a, len(p.sources)) < first(b+1, int(p.count)) && first(b, int(p.count)) < first(a+1, len(p.sources))
}

// registered merges the functions of one state into those of the others.
func (p *Plan) registered(r state.Reader) error {
	return scan(r, []byte{byte(keys.Function)}, func(key, value []byte) error {
		digests, err := state.DecodeDigests(value)
		if err != nil {
			return &state.CorruptError{What: "digests of a function", Key: append([]byte(nil), key...), Detail: err.Error()}
		}
		have, known := p.functions[string(key)]
		if !known {
			p.names = append(p.names, string(key))
		}
		p.functions[string(key)] = Merge(have, digests)
		return nil
	})
}

// Merge adds digests that are not known yet, in their order.
func Merge(have, more state.Digests) state.Digests {
	for _, d := range more {
		if !have.Knows(d) {
			have = have.With(d)
		}
	}
	return have
}

// connect reads both ends of every channel, and checks that the states are of one cut.
func (p *Plan) connect() error {
	for src, r := range p.sources {
		p.channels = append(p.channels, make([]cut.Channel, len(p.sources)))
		for dst, to := range p.sources {
			sent, err := state.ReadChannel(r, keys.Number(keys.Channel, uint32(dst)))
			if err != nil {
				return err
			}
			received, err := state.ReadChannel(to, keys.Number(keys.Inbox, uint32(src)))
			if err != nil {
				return err
			}
			c := cut.Channel{Sent: cut.End{Epoch: sent.Epoch, Last: sent.Last}, Received: cut.End{Epoch: received.Epoch, Last: received.Last}, First: cut.End{Epoch: sent.Epoch, Last: sent.Last + 1}}
			prefix := keys.Number(keys.Outbox, uint32(dst))
			var bad error
			if err := r.Scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
				_, c.First, bad = cutOutbox(key)
				return false
			}); errors.Join(err, bad) != nil {
				return errors.Join(err, bad)
			}
			if err := c.Check(); err != nil {
				return fmt.Errorf("the states of partitions %d and %d are not of one cut: %w", src, dst, err)
			}
			p.channels[src][dst] = c
			p.epoch = max(p.epoch, c.Renewed())
		}
	}
	return nil
}

// Base is above every incarnation in the states.
func (p *Plan) Base() uint64 { return p.base }

// Done returns the command that ends the import of a partition.
func (p *Plan) Done(partition uint32, restore uint64) *commandv1.ImportDone {
	return &commandv1.ImportDone{Restore: restore, Base: p.base, ClockMs: p.clock, Level: p.level, Evicted: p.evicted[partition]}
}

// Rows calls emit for every row of the new states. It ends with the first error.
func (p *Plan) Rows(emit func(partition uint32, row state.Write) error) error {
	run := &run{Plan: p, emit: emit, sent: make([][]state.Channel, p.count)}
	for n := range run.sent {
		run.sent[n] = make([]state.Channel, p.count)
	}
	for _, key := range p.names {
		if err := run.everywhere([]byte(key), p.functions[key].Encode()); err != nil {
			return err
		}
	}
	for n, r := range p.sources {
		run.source = uint32(n)
		if err := scan(r, nil, run.row); err != nil {
			return fmt.Errorf("partition %d: %w", n, err)
		}
	}
	for src, ends := range run.sent {
		for dst, end := range ends {
			if end.Last == 0 {
				continue
			}
			if err := run.to(uint32(src), keys.Number(keys.Channel, uint32(dst)), end.Encode()); err != nil {
				return err
			}
		}
	}
	return nil
}

// run is one pass over all rows.
type run struct {
	*Plan
	emit func(uint32, state.Write) error
	// source is the old partition whose rows are read.
	source uint32
	// sent are the sending ends of the new channels, by source and destination.
	sent [][]state.Channel
}

// families says what becomes of the rows of each family.
var families = map[keys.Family]func(r *run, key, value []byte) error{
	keys.Meta:       (*run).renewed, // Done has what the new states take over
	keys.Promise:    (*run).object,
	keys.Task:       (*run).task,
	keys.Callback:   (*run).relation,
	keys.AwaitedBy:  (*run).relation,
	keys.Listener:   (*run).object,
	keys.Notify:     (*run).object,
	keys.Unblock:    (*run).renewed, // clients that still wait ask again
	keys.Schedule:   (*run).object,
	keys.Header:     (*run).object,
	keys.Journal:    (*run).object,
	keys.Graph:      (*run).object,
	keys.Node:       (*run).object,
	keys.Latch:      (*run).object,
	keys.Heartbeat:  (*run).object,
	keys.Remains:    (*run).object,
	keys.Entity:     (*run).object,
	keys.EntityItem: (*run).object,
	keys.Holder:     (*run).object,
	keys.Deadline:   (*run).deadline,
	keys.Ready:      (*run).object,
	keys.Stuck:      (*run).object,
	keys.Outbox:     (*run).message,
	keys.Channel:    (*run).renewed, // after the last message
	keys.Inbox:      (*run).renewed, // the new channels begin
	keys.Reply:      (*run).reply,
	keys.ReplyAge:   (*run).replyAge,
	keys.Visibility: (*run).object,
	keys.Function:   (*run).renewed, // before all other rows, merged
}

func (r *run) row(key, value []byte) error {
	do := families[keys.Family(key[0])]
	if do == nil {
		return &state.CorruptError{What: "key", Key: append([]byte(nil), key...), Detail: "it is of no known family"}
	}
	return do(r, key, value)
}

// to emits a row; its bytes are valid only during the call of the source.
func (r *run) to(partition uint32, key, value []byte) error {
	return r.emit(partition, state.Write{Key: append([]byte(nil), key...), Value: append([]byte{}, value...)})
}

func (r *run) everywhere(key, value []byte) error {
	for n := range r.count {
		if err := r.to(n, key, value); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) renewed(_, _ []byte) error { return nil }

// object emits a row that is an object's alone.
func (r *run) object(key, value []byte) error {
	home, _, err := Home(key, r.count)
	if err != nil {
		return err
	}
	return r.to(home, key, value)
}

// relation emits a row of two objects. Both are of one call tree, and so in one partition.
func (r *run) relation(key, value []byte) error {
	ns, ids, _, err := parts(key, 2)
	if err == nil && id.Slot(ns, ids[0]) != id.Slot(ns, ids[1]) {
		err = &state.CorruptError{What: "relation", Key: append([]byte(nil), key...), Detail: fmt.Sprintf("%q and %q are of two call trees", ids[0], ids[1])}
	}
	if err != nil {
		return err
	}
	return r.object(key, value)
}

// task ends a lease: what the old cluster's worker holds is stale.
func (r *run) task(key, value []byte) error {
	t, err := recovery.DecodeTask(value)
	if err != nil {
		return &state.CorruptError{What: "task", Key: append([]byte(nil), key...), Detail: err.Error()}
	}
	if t.State == recovery.TaskAcquired {
		t.Version++
		t.LeaseAt = leaseEnded
		value = recovery.AppendTask(nil, t)
	}
	return r.object(key, value)
}

func (r *run) deadline(key, value []byte) error {
	kind, _, ns, objectID, err := keys.ParseDeadline(key)
	if err != nil {
		return err
	}
	if kind == keys.DeadlineUnblock {
		return nil
	}
	if kind == keys.DeadlineLease {
		key = keys.DeadlineOf(kind, leaseEnded, ns, objectID)
	}
	return r.to(state.PartitionOf(ns, objectID, r.count), key, value)
}

// message gives a message that was not received the next number of its new channel.
func (r *run) message(key, value []byte) error {
	dst, at, err := cutOutbox(key)
	if err != nil {
		return err
	}
	if int(dst) >= len(r.sources) {
		return &state.CorruptError{What: "message", Key: append([]byte(nil), key...), Detail: fmt.Sprintf("it is for partition %d of %d", dst, len(r.sources))}
	}
	if r.channels[r.source][dst].Delivered(at) {
		return nil
	}
	msg := &commandv1.Message{}
	if err := proto.Unmarshal(value, msg); err != nil || msg.Kind == nil {
		return &state.CorruptError{What: "message", Key: append([]byte(nil), key...), Detail: "it is no message"}
	}
	from, to := state.PartitionOf(msg.Namespace, msg.FromId, r.count), state.PartitionOf(msg.Namespace, msg.ToId, r.count)
	end := &r.sent[from][to]
	end.Epoch = r.epoch
	end.Last++
	msg.Seq, msg.Cut = end.Last, 0
	b, err := state.Deterministic.Marshal(msg)
	if err != nil {
		return err
	}
	end.Bytes += uint64(len(b))
	return r.to(from, keys.OutboxOf(to, r.epoch, msg.Seq), b)
}

func (r *run) reply(key, value []byte) error {
	stored, err := state.DecodeReply(value)
	if err != nil {
		return &state.CorruptError{What: "stored reply", Key: append([]byte(nil), key...), Detail: err.Error()}
	}
	return r.remembered(uint64(stored.At), key, value)
}

func (r *run) replyAge(key, value []byte) error {
	at, _, err := keys.CutUint64(key[1:])
	if err != nil {
		return err
	}
	return r.remembered(at, key, value)
}

// remembered emits what belongs to a stored reply, unless a merged state has forgotten all replies of that time.
func (r *run) remembered(at uint64, key, value []byte) error {
	for n := range r.count {
		if !r.shares(r.source, n) || at < r.evicted[n] {
			continue
		}
		if err := r.to(n, key, value); err != nil {
			return err
		}
	}
	return nil
}

// Home returns the partition to which a row belongs, of a cluster with so many. anywhere says that the key does not tell:
// the row of a stored reply or of a function. A state's own rows, and those of its inbox, are no rows of a restore.
func Home(key []byte, partitions uint32) (home uint32, anywhere bool, err error) {
	if len(key) == 0 {
		return 0, false, errors.New("restore: an empty key")
	}
	var ns string
	var ids []string
	switch keys.Family(key[0]) {
	case keys.Reply, keys.ReplyAge, keys.Function:
		return 0, true, nil
	case keys.Outbox:
		dst, _, err := cutOutbox(key)
		if err == nil && dst >= partitions {
			err = fmt.Errorf("restore: a message for partition %d of %d", dst, partitions)
		}
		return 0, true, err
	case keys.Channel:
		if len(key) != 5 || binary.BigEndian.Uint32(key[1:]) >= partitions {
			return 0, false, fmt.Errorf("restore: %x is no channel to one of %d partitions", key, partitions)
		}
		return 0, true, nil
	case keys.Deadline:
		var objectID string
		_, _, ns, objectID, err = keys.ParseDeadline(key)
		ids = []string{objectID}
	case keys.Ready:
		var rest []byte
		if ns, ids, rest, err = parts(key, 1); err == nil {
			_, ids[0], err = keys.ParseReady(key, key[:len(key)-len(rest)])
		}
	case keys.Stuck:
		if ns, ids, _, err = parts(key, 2); err == nil {
			ids = ids[1:]
		}
	case keys.Visibility:
		var rest []byte
		if ns, _, rest, err = parts(key, 0); err == nil && len(rest) > 0 {
			var objectID string
			_, objectID, err = keys.ParseVisibility(key, key[:len(key)-len(rest)+1])
			ids = []string{objectID}
		}
	case keys.Promise, keys.Task, keys.Callback, keys.AwaitedBy, keys.Listener, keys.Notify, keys.Schedule, keys.Header, keys.Journal, keys.Graph, keys.Node,
		keys.Latch, keys.Heartbeat, keys.Remains, keys.Entity, keys.EntityItem, keys.Holder:
		ns, ids, _, err = parts(key, 1)
	default:
		return 0, false, fmt.Errorf("restore: a row of family %s", keys.NameOf(key))
	}
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("restore: key %x names no object", key)
	}
	if err != nil {
		return 0, false, err
	}
	return state.PartitionOf(ns, ids[0], partitions), false, nil
}

// parts reads the namespace and n further strings of a key.
func parts(key []byte, n int) (ns string, more []string, rest []byte, err error) {
	ns, rest, err = keys.CutString(key[1:])
	for range n {
		var part string
		if err == nil {
			part, rest, err = keys.CutString(rest)
			more = append(more, part)
		}
	}
	return ns, more, rest, err
}

// cutOutbox reads the key of a message.
func cutOutbox(key []byte) (dst uint32, at cut.End, err error) {
	if len(key) != 1+4+8+8 {
		return 0, cut.End{}, fmt.Errorf("restore: %x is no key of a message", key)
	}
	return binary.BigEndian.Uint32(key[1:]), cut.End{Epoch: binary.BigEndian.Uint64(key[5:]), Last: binary.BigEndian.Uint64(key[13:])}, nil
}

// scan calls fn for all keys with a prefix and returns its first error.
func scan(r state.Reader, prefix []byte, fn func(key, value []byte) error) error {
	var bad error
	var upper []byte
	if len(prefix) > 0 {
		upper = keys.After(prefix)
	}
	err := r.Scan(prefix, upper, func(key, value []byte) bool {
		bad = fn(key, value)
		return bad == nil
	})
	return errors.Join(err, bad)
}
