package raftlog

import "github.com/hashicorp/raft"

// Raft reads its log one entry at a time, forward, in long runs: at start, in replay, for a follower that
// catches up. The second read of a run starts reading ahead: one iterator fetches the next 512 entries. This
// makes the replay of a long tail about four times faster.
const (
	readAheadEntries = 512
	readAheadBytes   = 1 << 20 // of one window
	readAheadWindows = 4       // followers that catch up at once, and the apply loop
)

// window is a run of decoded entries not yet returned.
type window struct {
	next uint64     // index expected next by its reader
	logs []raft.Log // logs[0] has index next; may be empty
	used uint64     // for replacing the least recently used
}

// readAhead is the state of the forward readers of one log. Its owner's lock guards it.
type readAhead struct {
	windows [readAheadWindows]window
	tick    uint64
	gen     uint64 // raised by reset: a window read before it is stale
}

func (r *readAhead) reset() {
	r.windows = [readAheadWindows]window{}
	r.gen++
}

func (r *readAhead) find(index uint64) *window {
	for i := range r.windows {
		if w := &r.windows[i]; w.next == index {
			return w
		}
	}
	return nil
}

// take returns the entry at index if a window holds it.
func (r *readAhead) take(index uint64, out *raft.Log) bool {
	w := r.find(index)
	if w == nil || len(w.logs) == 0 {
		return false
	}
	*out = w.logs[0]
	w.logs[0] = raft.Log{} // let go of the bytes
	w.logs = w.logs[1:]
	w.next++
	r.tick++
	w.used = r.tick
	return true
}

// expected says that a reader has just read the entry before index.
func (r *readAhead) expected(index uint64) bool { return r.find(index) != nil }

// note remembers that index was read, so that a read of index+1 counts as a run.
func (r *readAhead) note(index uint64) { r.replace(index+1, nil) }

// put stores the entries read from index on; logs[0] was returned already.
func (r *readAhead) put(index uint64, logs []raft.Log) {
	if w := r.find(index); w != nil {
		*w = window{}
	}
	r.replace(index+1, logs[1:])
}

func (r *readAhead) replace(next uint64, logs []raft.Log) {
	w := r.find(next)
	if w == nil {
		w = &r.windows[0]
		for i := range r.windows {
			if r.windows[i].used < w.used {
				w = &r.windows[i]
			}
		}
	}
	r.tick++
	*w = window{next: next, logs: logs, used: r.tick}
}
