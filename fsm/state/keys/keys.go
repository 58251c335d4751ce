// Package keys lays out a partition's state as keys: one family per kind of object, ordered so that every
// read the machine makes is a point read or one short scan.
//
// It defines the family numbers and the key encoding. The encoding is canonical (same object, same key), keys
// of one family sort as their parts do, and a family number is never reused. It holds no state.
//
// Strings inside a key end with 00 01, and a 00 in them is written as 00 FF, so an id may contain any bytes
// and no key is a prefix of another object's. Numbers are big endian.
package keys

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// Family is the first byte of every key. Numbers never change: append, never renumber.
type Family byte

const (
	Meta Family = 0x01 // name → value: applied and covered index, clock, checksum, stamp, …

	Promise    Family = 0x10 // namespace, id
	Task       Family = 0x11 // namespace, id; the header of an execution that was short has it inline
	Callback   Family = 0x12 // namespace, awaited, awaiter; an execution that awaits its own operation needs none
	AwaitedBy  Family = 0x13 // namespace, awaiter, awaited (the callback, seen from the other end)
	Listener   Family = 0x14 // namespace, id, address
	Notify     Family = 0x15 // namespace, id → what is left of the listeners of a settled promise
	Unblock    Family = 0x16 // namespace, address, id → until when a settled promise waits for being told to the address
	Schedule   Family = 0x17 // namespace, id → a schedule of promises
	Header     Family = 0x20 // namespace, id
	Journal    Family = 0x21 // namespace, id, incarnation, sequence; the header of an execution that was short has it inline
	Graph      Family = 0x22 // namespace, id, incarnation → a run's graph and input
	Node       Family = 0x23 // namespace, id, incarnation, number of the node
	Latch      Family = 0x24 // namespace, id, incarnation, signal → the payload delivered last
	Heartbeat  Family = 0x25 // namespace, id, incarnation → the last heartbeats of its steps
	Remains    Family = 0x26 // namespace, id → the incarnation up to which a purged execution's rows are to be deleted
	Entity     Family = 0x28 // namespace, id → an entity without its lists
	EntityItem Family = 0x29 // namespace, id, list, sequence → what waits at an entity
	Holder     Family = 0x2a // namespace, id, incarnation → an execution's critical section
	Deadline   Family = 0x30 // kind, time, namespace, id
	Ready      Family = 0x31 // namespace, function and digest, order, id → whether it stands for the task's retry timer
	Stuck      Family = 0x32 // namespace, function, id → whose code does not fit the execution's journal
	Outbox     Family = 0x40 // destination, epoch, sequence
	Channel    Family = 0x41 // destination → epoch, next sequence
	Inbox      Family = 0x42 // source → epoch, high-water
	Reply      Family = 0x50 // request id
	ReplyAge   Family = 0x51 // time, request id
	Visibility Family = 0x60 // namespace, class, newest first, id
	Function   Family = 0x70 // namespace, function → its digests
)

// Table names every family, for inspection and for the test that pins the numbers.
func Table() []struct {
	Family Family
	Name   string
} {
	return []struct {
		Family Family
		Name   string
	}{
		{Meta, "meta"}, {Promise, "promise"}, {Task, "task"}, {Callback, "callback"},
		{AwaitedBy, "awaited-by"}, {Listener, "listener"}, {Notify, "notify"}, {Unblock, "unblock"}, {Schedule, "schedule"}, {Header, "header"}, {Journal, "journal"},
		{Graph, "graph"}, {Node, "node"}, {Latch, "latch"}, {Heartbeat, "heartbeat"}, {Remains, "remains"}, {Entity, "entity"}, {EntityItem, "entity-item"}, {Holder, "holder"},
		{Deadline, "deadline"}, {Ready, "ready"}, {Stuck, "stuck"}, {Outbox, "outbox"}, {Channel, "channel"},
		{Inbox, "inbox"}, {Reply, "reply"}, {ReplyAge, "reply-age"}, {Visibility, "visibility"},
		{Function, "function"},
	}
}

// NameOf names the family of a key; "unknown" if it is of none.
func NameOf(key []byte) string {
	for _, row := range Table() {
		if len(key) > 0 && row.Family == Family(key[0]) {
			return row.Name
		}
	}
	return "unknown"
}

// DeadlineKind orders the expirations of one tick. Promises come first, so that later kinds see what they
// wake (recovery protocol, sweep order).
type DeadlineKind byte

const (
	DeadlinePromise DeadlineKind = 1 // a promise's timeout: executions, timers, signal waits, standalone promises
	DeadlineLease   DeadlineKind = 2 // an acquired task's lease
	DeadlineRetry   DeadlineKind = 3 // the retry timer of a pending task that is a client's, or in no queue
	DeadlineGrace   DeadlineKind = 4 // a cancelling execution's grace
	DeadlineGraph   DeadlineKind = 5 // a graph run that continues, or the next attempt of a node
	DeadlineEntity  DeadlineKind = 6 // an entity's first scheduled signal
	DeadlineAnswer  DeadlineKind = 7 // the result of a client's call, which is deleted then
	DeadlineSweep   DeadlineKind = 8 // the next part of a former incarnation to delete

	DeadlineChildren DeadlineKind = 9  // the next children that a cancel or an end of their parent reaches
	DeadlineNotify   DeadlineKind = 10 // the next listeners of a settled promise

	DeadlinePurge DeadlineKind = 12 // the next part of a purged execution to delete

	DeadlineUnblock DeadlineKind = 13 // an unblock that was not delivered; the id names promise and address
)

// LastDeadline is the kind with the highest number.
const LastDeadline = DeadlineUnblock

// DeadlineKinds lists the kinds in the order in which a tick runs them.
var DeadlineKinds = []DeadlineKind{DeadlinePromise, DeadlineGrace, DeadlineGraph, DeadlineEntity,
	DeadlineLease, DeadlineRetry, DeadlineAnswer, DeadlineSweep, DeadlineChildren, DeadlineNotify, DeadlinePurge, DeadlineUnblock}

// AppendString appends a string part.
func AppendString(b []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, 0)
		if i < 0 {
			return append(append(b, s...), 0, 1)
		}
		b = append(append(b, s[:i]...), 0, 0xff)
		s = s[i+1:]
	}
}

// CutString reads a string part off the front of b.
func CutString(b []byte) (s string, rest []byte, err error) {
	if i := bytes.IndexByte(b, 0); i >= 0 && i+1 < len(b) && b[i+1] == 1 {
		return string(b[:i]), b[i+2:], nil // without an escape
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != 0 {
			out = append(out, b[i])
			continue
		}
		if i+1 >= len(b) {
			break
		}
		switch b[i+1] {
		case 1:
			return string(out), b[i+2:], nil
		case 0xff:
			out = append(out, 0)
			i++
		default:
			return "", nil, fmt.Errorf("keys: bad escape %#x in a key", b[i+1])
		}
	}
	return "", nil, fmt.Errorf("keys: string part without an end")
}

// AppendUint64 appends a number so that smaller ones sort first.
func AppendUint64(b []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(b, n) }

// CutUint64 reads a number off the front of b.
func CutUint64(b []byte) (n uint64, rest []byte, err error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("keys: number part of %d bytes", len(b))
	}
	return binary.BigEndian.Uint64(b), b[8:], nil
}

// Strings is the beginning of a key with its family and its first n string parts; nil if it has fewer.
func Strings(key []byte, n int) []byte {
	for i := 2; i < len(key); i++ {
		if key[i-1] == 0 && key[i] == 1 {
			if n--; n == 0 {
				return key[: i+1 : i+1]
			}
		}
	}
	return nil
}

// Of is a key of the given family with string parts.
func Of(f Family, parts ...string) []byte {
	n := 1
	for _, p := range parts {
		n += len(p) + 2
	}
	return Append(make([]byte, 0, n+16), f, parts...)
}

// Append appends what Of returns.
func Append(b []byte, f Family, parts ...string) []byte {
	b = append(b, byte(f))
	for _, p := range parts {
		b = AppendString(b, p)
	}
	return b
}

// MetaKey names one of the partition's own values.
func MetaKey(name string) []byte { return append([]byte{byte(Meta)}, name...) }

// JournalPrefix is the common prefix of one incarnation's journal.
func JournalPrefix(namespace, id string, incarnation uint64) []byte {
	return AppendUint64(Of(Journal, namespace, id), incarnation)
}

// JournalEntry is the key of one journal entry.
func JournalEntry(namespace, id string, incarnation, seq uint64) []byte {
	return AppendUint64(JournalPrefix(namespace, id, incarnation), seq)
}

// AppendJournalEntry appends what JournalEntry returns.
func AppendJournalEntry(b []byte, namespace, id string, incarnation, seq uint64) []byte {
	return AppendUint64(AppendUint64(Append(b, Journal, namespace, id), incarnation), seq)
}

// GraphOf is the key of the graph of one incarnation of a run.
func GraphOf(namespace, id string, incarnation uint64) []byte {
	return AppendUint64(Of(Graph, namespace, id), incarnation)
}

// NodePrefix is the common prefix of the nodes of one incarnation of a run.
func NodePrefix(namespace, id string, incarnation uint64) []byte {
	return AppendUint64(Of(Node, namespace, id), incarnation)
}

// NodeOf is the key of one node, by its position in the submitted graph.
func NodeOf(namespace, id string, incarnation uint64, node uint32) []byte {
	return binary.BigEndian.AppendUint32(NodePrefix(namespace, id, incarnation), node)
}

// LatchPrefix is the common prefix of the signals that one incarnation of a run has received.
func LatchPrefix(namespace, id string, incarnation uint64) []byte {
	return AppendUint64(Of(Latch, namespace, id), incarnation)
}

// LatchOf is the key of one signal of a run.
func LatchOf(namespace, id string, incarnation uint64, signal string) []byte {
	return AppendString(LatchPrefix(namespace, id, incarnation), signal)
}

// HeartbeatOf is the key of the heartbeats of one incarnation of an execution.
func HeartbeatOf(namespace, id string, incarnation uint64) []byte {
	return AppendUint64(Of(Heartbeat, namespace, id), incarnation)
}

// EntityList says in which list of an entity something waits.
type EntityList byte

const (
	Lane    EntityList = 1
	Queued  EntityList = 2
	Delayed EntityList = 3
)

// EntityItemPrefix is the common prefix of the operations that wait at one entity.
func EntityItemPrefix(namespace, id string) []byte { return Of(EntityItem, namespace, id) }

// EntityItemOf is the key of one entry of an entity's list.
func EntityItemOf(namespace, id string, list EntityList, seq uint64) []byte {
	return AppendUint64(append(EntityItemPrefix(namespace, id), byte(list)), seq)
}

// ParseEntityItem reads list and sequence of an entry's key, given its prefix.
func ParseEntityItem(key, prefix []byte) (list EntityList, seq uint64, err error) {
	if len(key) != len(prefix)+9 {
		return 0, 0, fmt.Errorf("keys: %x is not an entry of an entity", key)
	}
	seq, _, err = CutUint64(key[len(prefix)+1:])
	return EntityList(key[len(prefix)]), seq, err
}

// HolderOf is the key of the critical section of one incarnation of an execution.
func HolderOf(namespace, id string, incarnation uint64) []byte {
	return AppendUint64(Of(Holder, namespace, id), incarnation)
}

// DeadlineOf is the key of one deadline, at unix milliseconds.
func DeadlineOf(kind DeadlineKind, at int64, namespace, id string) []byte {
	return AppendDeadline(make([]byte, 0, 16+len(namespace)+len(id)), kind, at, namespace, id)
}

// AppendDeadline appends what DeadlineOf returns.
func AppendDeadline(b []byte, kind DeadlineKind, at int64, namespace, id string) []byte {
	b = AppendUint64(append(b, byte(Deadline), byte(kind)), uint64(max(at, 0)))
	return AppendString(AppendString(b, namespace), id)
}

// DeadlineBounds spans the deadlines of a kind that have expired at now: [lower, upper).
func DeadlineBounds(kind DeadlineKind, now int64) (lower, upper []byte) {
	lower = []byte{byte(Deadline), byte(kind)}
	upper = AppendUint64([]byte{byte(Deadline), byte(kind)}, uint64(max(now, 0))+1)
	return lower, upper
}

// ParseDeadline reads a deadline's key.
func ParseDeadline(key []byte) (kind DeadlineKind, at int64, namespace, id string, err error) {
	kind, at, rest, err := CutDeadline(key)
	if err != nil {
		return 0, 0, "", "", err
	}
	namespace, rest, err = CutString(rest)
	if err != nil {
		return 0, 0, "", "", err
	}
	id, _, err = CutString(rest)
	return kind, at, namespace, id, err
}

// CutDeadline reads kind and time off the front of a deadline's key.
func CutDeadline(key []byte) (kind DeadlineKind, at int64, rest []byte, err error) {
	if len(key) < 2 || Family(key[0]) != Deadline {
		return 0, 0, nil, fmt.Errorf("keys: %x is not a deadline", key)
	}
	n, rest, err := CutUint64(key[2:])
	return DeadlineKind(key[1]), int64(n), rest, err
}

// ReadyOf is the key of a pending task in its function's queue. It sorts by retry time, which is the order in
// which tasks became pending.
func ReadyOf(namespace, function string, order int64, id string) []byte {
	return AppendReady(nil, namespace, function, order, id)
}

// AppendReady appends what ReadyOf returns.
func AppendReady(b []byte, namespace, function string, order int64, id string) []byte {
	return AppendString(AppendUint64(Append(b, Ready, namespace, function), uint64(max(order, 0))), id)
}

// ParseReady reads the order and id of a ready key, given the prefix Of(Ready, namespace, function).
func ParseReady(key, prefix []byte) (order int64, id string, err error) {
	if len(key) < len(prefix) {
		return 0, "", fmt.Errorf("keys: %x is not a ready-queue key", key)
	}
	n, rest, err := CutUint64(key[len(prefix):])
	if err != nil {
		return 0, "", err
	}
	id, _, err = CutString(rest)
	return int64(n), id, err
}

// OutboxPrefix spans one channel's epoch.
func OutboxPrefix(destination uint32, epoch uint64) []byte {
	b := binary.BigEndian.AppendUint32([]byte{byte(Outbox)}, destination)
	return AppendUint64(b, epoch)
}

// OutboxOf is the key of one outbox message.
func OutboxOf(destination uint32, epoch, seq uint64) []byte {
	return AppendUint64(OutboxPrefix(destination, epoch), seq)
}

// Number is a key with a family and one number.
func Number(f Family, n uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(f)}, n)
}

// ReplyAgeOf orders stored replies by machine time.
func ReplyAgeOf(at int64, request []byte) []byte {
	return append(AppendUint64([]byte{byte(ReplyAge)}, uint64(max(at, 0))), request...)
}

// ReplyOf is the key of a stored reply.
func ReplyOf(request []byte) []byte { return append([]byte{byte(Reply)}, request...) }

// VisibilityClass groups executions for listing.
type VisibilityClass byte

const (
	Open      VisibilityClass = 1
	Completed VisibilityClass = 2
	Failed    VisibilityClass = 3
	Cancelled VisibilityClass = 4
)

// VisibilityPrefix spans one class of a namespace.
func VisibilityPrefix(namespace string, class VisibilityClass) []byte {
	return append(Of(Visibility, namespace), byte(class))
}

// VisibilityOf is the key of an execution's listing entry: newest first, then by id.
func VisibilityOf(namespace string, class VisibilityClass, createdMS int64, id string) []byte {
	return AppendVisibility(nil, namespace, class, createdMS, id)
}

// AppendVisibility appends what VisibilityOf returns.
func AppendVisibility(b []byte, namespace string, class VisibilityClass, createdMS int64, id string) []byte {
	b = append(Append(b, Visibility, namespace), byte(class))
	return AppendString(AppendUint64(b, ^uint64(createdMS)), id)
}

// ParseVisibility reads creation time and id of a listing key, given its prefix.
func ParseVisibility(key, prefix []byte) (createdMS int64, id string, err error) {
	if len(key) < len(prefix) {
		return 0, "", fmt.Errorf("keys: %x is not a listing key", key)
	}
	n, rest, err := CutUint64(key[len(prefix):])
	if err != nil {
		return 0, "", err
	}
	id, _, err = CutString(rest)
	return int64(^n), id, err
}

// After is the smallest key greater than every key with this prefix; nil means no bound.
func After(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			out := append([]byte(nil), prefix[:i+1]...)
			out[i]++
			return out
		}
	}
	return nil
}
