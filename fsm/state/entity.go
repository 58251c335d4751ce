package state

import (
	"errors"
	"slices"

	"perdure/entity"
	"perdure/fsm/state/keys"
)

// Entity is an entity as it is stored.
type Entity struct {
	*entity.State
	EntityWork
}

// EntityWork is what the machine stores of an entity in addition to its rules' state.
type EntityWork struct {
	// LastCommit is the request id of the last commit: its repetition gets the same answer.
	LastCommit []byte
	// Failures counts since the last commit how often the worker was lost or gave the operations back with a problem.
	Failures uint64
	// DueAt is when the first scheduled signal is to be queued; 0 if there is none.
	DueAt int64
}

const entityVersion = 1

// EncodeEntityHead encodes an entity without its lists.
func EncodeEntityHead(s *entity.State, w EntityWork) []byte {
	e := encoder{}
	e.u64(entityVersion)
	e.bytes(w.LastCommit)
	e.u64(w.Failures)
	e.i64(w.DueAt)
	return entity.AppendHead(e.b, s)
}

// DecodeEntityHead is the inverse of EncodeEntityHead: an entity with empty lists.
func DecodeEntityHead(b []byte) (Entity, error) {
	d := decoder{b: b}
	if v := d.u64(); d.err == nil && v != entityVersion {
		return Entity{}, errors.New("unknown version of an entity")
	}
	w := EntityWork{LastCommit: d.bytes(), Failures: d.u64(), DueAt: d.i64()}
	if d.err != nil {
		return Entity{}, d.err
	}
	s, err := entity.DecodeHead(d.b)
	return Entity{s, w}, err
}

// ReadEntityHead reads an entity without its lists. ok is false if there is none. Errors are those of ReadHeader.
func ReadEntityHead(r Reader, ns, entityID string) (e Entity, ok bool, err error) {
	return read(r, "entity", keys.Of(keys.Entity, ns, entityID), entityID, DecodeEntityHead, func(e Entity) string { return string(e.ID) })
}

// ReadEntity reads an entity with at most so many entries of its queue; 0 reads all. Errors are those of ReadHeader.
func ReadEntity(r Reader, ns, entityID string, most int) (e Entity, ok bool, err error) {
	e, ok, err = ReadEntityHead(r, ns, entityID)
	if err != nil || !ok {
		return e, ok, err
	}
	prefix := keys.EntityItemPrefix(ns, entityID)
	var bad error
	err = r.Scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		list, item, fault := DecodeEntityItem(key, prefix, value)
		if fault != nil {
			bad = &CorruptError{What: "entry of an entity", Key: slices.Clone(key), Detail: fault.Error()}
			return false
		}
		switch list {
		case keys.Queued:
			e.Queue = append(e.Queue, item)
		case keys.Lane:
			e.Lane = append(e.Lane, item)
		default:
			e.Delayed = append(e.Delayed, item)
		}
		return most == 0 || len(e.Queue) < most
	})
	if err == nil {
		err = bad
	}
	e.SortDelayed()
	return e, ok, err
}

// DecodeEntityItem decodes an entry of an entity's list, and checks that its sequence is its key's.
func DecodeEntityItem(key, prefix, value []byte) (keys.EntityList, entity.Entry, error) {
	list, seq, err := keys.ParseEntityItem(key, prefix)
	if err != nil {
		return 0, entity.Entry{}, err
	}
	if list != keys.Queued && list != keys.Delayed && list != keys.Lane {
		return 0, entity.Entry{}, errors.New("it is in no list")
	}
	item, err := entity.DecodeEntry(value)
	if err == nil && item.Seq != seq {
		err = errors.New("its number is not its key's")
	}
	return list, item, err
}

// ReadHolder reads an execution's critical section. ok is false if it is in none. Errors are those of ReadHeader.
func ReadHolder(r Reader, ns, objectID string, incarnation uint64) (h *entity.Holder, ok bool, err error) {
	key := keys.HolderOf(ns, objectID, incarnation)
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return nil, false, err
	}
	h, err = entity.DecodeHolder(b)
	if err == nil && (h.Self.ID != objectID || h.Self.Incarnation != incarnation) {
		err = misplaced(h.Self.ID)
	}
	if err != nil {
		return nil, false, &CorruptError{What: "critical section", Key: key, Detail: err.Error()}
	}
	return h, true, nil
}

// Failure types of calls of entities, given by the server.
const (
	// FailureLost: the worker was lost, or gave the operation back, as often as the retry policy allows.
	FailureLost = "lost"
	// FailureRefused: the entity refused the operation.
	FailureRefused = "refused"
)

// MaxEntityQueue and MaxEntityBytes bound what waits at an entity while operations are admitted: entries, and the bytes of
// their operations.
const (
	MaxEntityQueue = 10_000
	MaxEntityBytes = 16 << 20
)

// RuleEntityBacklog is the rule that a refusal names when an entity's backlog, or the outbox to it, is full.
const RuleEntityBacklog = "entity_backlog"

// AnswerRetentionMS is how long the machine stores the result of a client's call after the operation ran.
const AnswerRetentionMS = 120_000

// EntityAttempts is the retry policy of operations: so often may the worker of an operation be lost or give it back
// before the operation fails.
const EntityAttempts = 5
