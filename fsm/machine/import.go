package machine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/restore"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// The rules that refusals of a restore name.
const (
	// ruleRestoreEmpty: the partition holds nothing before its first row.
	ruleRestoreEmpty = "restore_empty"
	// ruleRestoreOne: the rows of a partition are those of one restore.
	ruleRestoreOne = "restore_one"
	// ruleRestoreRow: a row belongs to the partition.
	ruleRestoreRow = "restore_row"
)

// importMessages is how many messages for the partition itself one ImportDone applies.
const importMessages = 256

// mayServe refuses what a partition does not do while it is being restored: its rows need not be a whole state.
func (m *Machine) mayServe(cmd *commandv1.Command) *api.Error {
	if m.importing == 0 {
		return nil
	}
	switch cmd.Kind.(type) {
	case *commandv1.Command_Import, *commandv1.Command_ImportDone, *commandv1.Command_RaiseLevel, *commandv1.Command_InheritLeases, *commandv1.Command_Assign:
		return nil
	}
	return wire.Restoring(m.cfg.Partition)
}

// applyImport stores rows of a restored state. It is idempotent by the name of its restore.
func applyImport(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, m := cmd.GetImport(), t.m
	done := req.Restore != 0 && req.Restore == m.restored && m.importing == 0
	reply := &commandv1.Reply{Kind: &commandv1.Reply_Import{Import: &commandv1.ImportReply{Done: done}}}
	if done {
		return reply, nil
	}
	if refused := t.mayImport(req.Restore); refused != nil {
		return nil, refused
	}
	for _, row := range req.Rows {
		home, anywhere, err := restore.Home(row.Key, m.cfg.Partitions)
		if err == nil && !anywhere && home != m.cfg.Partition {
			err = fmt.Errorf("key %x belongs to partition %d", row.Key, home)
		}
		if err != nil {
			return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "restore of partition %d: %v", m.cfg.Partition, err).With("rule", ruleRestoreRow)
		}
	}
	t.level = max(t.level, state.LevelFunctions)
	for _, row := range req.Rows {
		value := row.Value
		switch keys.Family(row.Key[0]) {
		case keys.Function:
			var err error
			if value, err = t.mergedDigests(row); err != nil {
				return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "restore of partition %d: key %x: %v", m.cfg.Partition, row.Key, err).With("rule", ruleRestoreRow)
			}
		case keys.Deadline:
			if _, at, _, err := keys.CutDeadline(row.Key); err == nil {
				t.fx.expiration(at)
			}
		}
		t.put(row.Key, append([]byte{}, value...))
	}
	m.importing, m.loaded = req.Restore, false
	m.putMeta(state.MetaImporting, req.Restore)
	return reply, nil
}

// mayImport refuses rows for a partition that holds anything but them.
func (t *txn) mayImport(restored uint64) *api.Error {
	m := t.m
	switch {
	case restored == 0:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a restore without a name").With("rule", ruleRestoreOne)
	case m.importing == restored:
		return nil
	case m.importing != 0:
		return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "partition %d is being restored by %016x, not by %016x", m.cfg.Partition, m.importing, restored).
			With("rule", ruleRestoreOne)
	}
	var found []byte
	t.scan([]byte{byte(keys.Meta) + 1}, []byte{byte(keys.Function)}, func(key, _ []byte) bool {
		found = append(found, key...)
		return false
	})
	if found == nil {
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "partition %d is not empty: it has a key of family %s; a restore needs a new cluster",
		m.cfg.Partition, keys.NameOf(found)).With("rule", ruleRestoreEmpty)
}

// mergedDigests is the row of a function with what workers have registered in the new cluster: theirs stay current.
func (t *txn) mergedDigests(row *commandv1.ImportRow) ([]byte, error) {
	digests, err := state.DecodeDigests(row.Value)
	if err != nil {
		return nil, err
	}
	if have, ok := t.get(row.Key); ok {
		known, err := state.DecodeDigests(have)
		if err != nil {
			state.PanicCorrupt("digests of a function", row.Key, err)
		}
		digests = restore.Merge(digests, known)
	}
	return digests.Encode(), nil
}

// applyImportDone ends a restore: the partition takes over what its new state says, applies the messages that it has for
// itself, and serves. It is idempotent by the name of its restore.
func applyImportDone(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, m := cmd.GetImportDone(), t.m
	reply := func(more bool) (*commandv1.Reply, *api.Error) {
		return &commandv1.Reply{Kind: &commandv1.Reply_ImportDone{ImportDone: &commandv1.ImportDoneReply{More: more}}}, nil
	}
	switch {
	case req.Restore != 0 && m.importing == 0 && m.restored == req.Restore:
		return reply(false)
	case req.Restore == 0 || m.importing != req.Restore:
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "partition %d is being restored by %016x, not by %016x", m.cfg.Partition, m.importing, req.Restore).
			With("rule", ruleRestoreOne)
	}
	t.adopt(req)
	if !m.loaded {
		t.load()
	}
	left, err := t.receiveOwn()
	if err != nil {
		return nil, ruleError("", err)
	}
	if left {
		return reply(true)
	}
	m.importing, m.restored = 0, req.Restore
	m.putMeta(state.MetaImporting, 0)
	m.putMeta(state.MetaRestored, m.restored)
	t.begins()
	return reply(false)
}

// adopt makes the machine's own values those of the restored state.
func (t *txn) adopt(req *commandv1.ImportDone) {
	m := t.m
	t.level = max(t.level, req.Level, state.LevelFunctions)
	t.index += max(req.Base, m.base) - m.base
	m.base, m.clock, m.evicted = max(m.base, req.Base), max(m.clock, req.ClockMs), max(m.evicted, int64(req.Evicted))
	t.now = m.clock
	m.putMeta(state.MetaBase, m.base)
	m.putMeta(state.MetaEvicted, uint64(m.evicted))
}

// load makes the machine's caches those of the imported rows, and counts the stored replies.
func (t *txn) load() {
	m := t.m
	m.replies, m.replyBytes = 0, 0
	prefix := []byte{byte(keys.ReplyAge)}
	t.scan(prefix, keys.After(prefix), func(key, size []byte) bool {
		n, err := state.ReplySize(size)
		if err != nil {
			state.PanicCorrupt("stored reply's age", key, err)
		}
		m.replies++
		m.replyBytes += n
		return true
	})
	m.putMeta(state.MetaReplies, m.replies)
	m.putMeta(state.MetaReplyBytes, m.replyBytes)
	m.ready, m.pinned, m.head = map[state.Queue]int{}, map[state.Queue][]string{}, map[state.Queue]int64{}
	m.digests, m.stuck, m.deadlines = map[state.Queue]state.Digests{}, 0, state.DeadlineScan{}
	if err := errors.Join(m.countReady(m.batch), m.readDigests(m.batch), m.present.read(m.batch)); err != nil {
		panic(state.Fault{Err: err})
	}
	m.loaded = true
}

// receiveOwn applies messages of the partition to itself, in their order, and reports whether some are left: the old
// cluster had their ends in two partitions.
func (t *txn) receiveOwn() (left bool, err error) {
	prefix := keys.Number(keys.Outbox, t.m.cfg.Partition)
	var rows [][]byte
	var messages []*commandv1.Message
	t.scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		msg := &commandv1.Message{}
		if bad := proto.Unmarshal(value, msg); bad != nil {
			state.PanicCorrupt("message", key, bad)
		}
		if left = len(rows) == importMessages; left {
			return false
		}
		rows, messages = append(rows, append([]byte(nil), key...)), append(messages, msg)
		return true
	})
	for i, msg := range messages {
		if t.waitsForEntry(msg) {
			return true, nil
		}
		t.remove(rows[i])
		if err := t.receive(msg); err != nil {
			return false, err
		}
	}
	if !left {
		t.remove(keys.Number(keys.Channel, t.m.cfg.Partition))
	}
	return left, nil
}

// begins has the leader look at everything that the restored state has to do.
func (t *txn) begins() {
	t.fx.expiration(leaseEnded)
	prefix := []byte{byte(keys.Ready)}
	t.scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		ns, rest, err := keys.CutString(key[1:])
		if err == nil {
			var target string
			if target, _, err = keys.CutString(rest); err == nil {
				if q := state.QueueOf(ns, target); len(t.fx.Ready) == 0 || t.fx.Ready[len(t.fx.Ready)-1] != q {
					t.fx.Ready = append(t.fx.Ready, q)
				}
			}
		}
		if err != nil {
			state.PanicCorrupt("place in a queue", key, err)
		}
		return true
	})
	prefix = []byte{byte(keys.Channel)}
	t.scan(prefix, keys.After(prefix), func(key, _ []byte) bool {
		t.fx.Outbox = append(t.fx.Outbox, binary.BigEndian.Uint32(key[1:]))
		return true
	})
}

// leaseEnded is before every deadline.
const leaseEnded = 1
