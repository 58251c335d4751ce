package workers

import (
	"slices"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// kept records which functions a worker keeps in memory while they wait: by the token of the execution's next task, the
// number of journal entries that the worker has. It is a hint that ends with the stream; a wrong one costs the worker a
// read of the journal. As the worker does, it forgets the function that has waited the longest. The dispatcher's lock guards it.
//
//	len(entries) <= most, len(order) <= 2*most
type kept struct {
	entries map[credit.Task]uint64
	order   []credit.Task // the longest wait first; some of them are gone
}

// maxKept bounds the functions of a worker that does not say how many it keeps.
const maxKept = 10_000

// most is how many functions the worker keeps. A worker with streams to several nodes keeps so many for all of them: what it drops
// for a function of another node is here until others follow.
func (w *Worker) most() int {
	if w.MaxKept > 0 {
		return min(w.MaxKept, maxKept)
	}
	return maxKept
}

// Keeps records that the worker keeps a function in memory if it waits after a commit under token, and has the journal's
// entries before knownSeq. The task of the next version, if it comes by this stream, leaves them out.
func (w *Worker) Keeps(token *perdurev1.TaskToken, knownSeq uint64) {
	next := creditTask(token)
	next.Version++
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	k, most := &w.kept, w.most()
	if k.entries == nil {
		k.entries = map[credit.Task]uint64{}
	}
	if _, there := k.entries[next]; !there {
		k.order = append(k.order, next)
	}
	k.entries[next] = knownSeq
	for len(k.entries) > most {
		delete(k.entries, k.order[0])
		k.order = k.order[1:]
	}
	if len(k.order) > 2*most {
		k.compact()
	}
}

// compact forgets the order of what is gone.
func (k *kept) compact() {
	seen := make(map[credit.Task]bool, len(k.entries))
	k.order = slices.DeleteFunc(k.order, func(t credit.Task) bool {
		_, there := k.entries[t]
		gone := !there || seen[t]
		seen[t] = true
		return gone
	})
}

// fromSeq returns the first journal entry that a task's worker lacks, and forgets it: a repeated delivery is whole.
func (w *Worker) fromSeq(token *perdurev1.TaskToken) uint64 {
	if token == nil {
		return 0
	}
	task := creditTask(token)
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	from := w.kept.entries[task]
	delete(w.kept.entries, task)
	return from
}
