package state

import (
	"encoding/binary"
	"fmt"

	"perdure/fsm/state/keys"
	"perdure/id"
)

// MetaNumber reads one of the partition's own values, 0 if it was never written. The error is of the storage, or a
// *CorruptError.
func MetaNumber(r Reader, name string) (uint64, error) {
	key := keys.MetaKey(name)
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	if len(v) != 8 {
		return 0, &CorruptError{What: "value " + name, Key: key, Detail: fmt.Sprintf("%d bytes, not 8", len(v))}
	}
	return binary.BigEndian.Uint64(v), nil
}

// MachineMeta reports whether a value is the machine's own, not the store's.
func MachineMeta(name string) bool {
	switch name {
	case MetaApplied, MetaClock, MetaChecksum, MetaFeature, MetaEvicted, MetaReplies, MetaReplyBytes, MetaBase, MetaImporting, MetaRestored, MetaCut:
		return true
	}
	return false
}

// Level is the feature level of a state; 0 of one that holds nothing yet.
func Level(r Reader) (uint64, error) { return MetaNumber(r, MetaFeature) }

// PartitionOf returns the partition of an id. Each partition has an equal run of slots.
func PartitionOf(namespace, objectID string, partitions uint32) uint32 {
	return uint32(uint64(id.Slot(namespace, objectID)) * uint64(partitions) / uint64(id.Slots))
}

// Ref names an object.
type Ref struct{ Namespace, ID string }

// Names of the partition's own values.
const (
	MetaApplied  = "applied"  // the index of the last entry in the state
	MetaClock    = "clock"    // the machine's time
	MetaChecksum = "checksum" // of every mutation so far
	MetaFeature  = "feature"  // the feature level
	MetaEvicted  = "evicted"  // stored replies up to this time were evicted
	MetaReplies  = "replies"  // how many replies are stored

	MetaReplyBytes = "reply_bytes" // and their bytes, of those stored at LevelReplies
	MetaCut        = "cut"         // the cut that the partition is in; see package cut

	MetaBase      = "base"      // what is added to an index to make an incarnation, after a restore
	MetaImporting = "importing" // the restore whose rows are being stored; 0 when none is
	MetaRestored  = "restored"  // the restore that has made this state
)

// Partition says which partition of a cluster a state is: one of Count, by its Number from 0.
type Partition struct{ Number, Count uint32 }

// Check refuses a partition that its cluster does not have.
func (p Partition) Check() error {
	if p.Number >= p.Count {
		return fmt.Errorf("fsm: partition %d of %d", p.Number, p.Count)
	}
	return nil
}
