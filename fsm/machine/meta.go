package machine

import (
	"encoding/binary"
	"fmt"
	"perdure/fsm/keys"
	"perdure/id"
)

func metaNumber(r Reader, name string) (uint64, error) {
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

// machineMeta tells the machine's own values from those of the store that keeps the state.
func machineMeta(name string) bool {
	switch name {
	case metaApplied, metaClock, metaChecksum, metaFeature, metaEvicted, metaReplies, metaReplyBytes:
		return true
	}
	return false
}

// Level is the feature level of a state; 0 of one that holds nothing yet.
func Level(r Reader) (uint64, error) { return metaNumber(r, metaFeature) }

// LevelLeases is the feature level from which on every replica knows InheritLeases.
const LevelLeases = levelLeases

// Place is the partition of an id. Slots are dealt in equal runs.
func Place(namespace, objectID string, partitions uint32) uint32 {
	return uint32(uint64(id.Slot(namespace, objectID)) * uint64(partitions) / uint64(id.Slots))
}

// Queue is the queue of pending tasks of one function.
type Queue struct{ Namespace, Function string }

// Ref names an object.
type Ref struct{ Namespace, ID string }

// Names of the partition's own values.
const (
	metaApplied  = "applied"  // the index of the last entry in the state
	metaClock    = "clock"    // the machine's time
	metaChecksum = "checksum" // of every mutation so far
	metaFeature  = "feature"  // the feature level
	metaEvicted  = "evicted"  // stored replies up to this time are gone
	metaReplies  = "replies"  // how many replies are stored

	metaReplyBytes = "reply_bytes" // and their bytes, of those stored at levelReplies
)
