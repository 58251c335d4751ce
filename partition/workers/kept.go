package workers

import (
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// kept records which functions a worker keeps in memory while they wait: by the token of the execution's next task, the
// number of journal entries that the worker has. It is a hint that ends with the stream; a wrong one costs the worker a
// read of the journal. The dispatcher's lock guards it.
//
//	len(entries) <= maxKept
type kept struct{ entries map[credit.Task]uint64 }

const maxKept = 10_000

// Keeps records that the worker keeps a function in memory if it waits after a commit under token, and has the journal's
// entries before knownSeq. The task of the next version, if it comes by this stream, leaves them out.
func (w *Worker) Keeps(token *perdurev1.TaskToken, knownSeq uint64) {
	next := creditTask(token)
	next.Version++
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if w.kept.entries == nil {
		w.kept.entries = map[credit.Task]uint64{}
	}
	if len(w.kept.entries) >= maxKept {
		clear(w.kept.entries)
	}
	w.kept.entries[next] = knownSeq
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
