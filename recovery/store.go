package recovery

// Store is the state of one namespace within one partition, as the operations see it.
//
// Callers: the operations of this package, from one goroutine. A store need not be safe for concurrent use.
//
// Atomicity: an operation writes only after all its checks, so one that returns an error has written nothing.
// One operation may make several writes; the store's owner makes those of one command durable together or not
// at all. Within a command, reads see the earlier writes.
//
// Values: neither side modifies a slice in place after it has crossed this interface. So a store may keep a
// slice that it was given and return it.
//
// Order: the lists are ascending and without duplicates, because they reach state and output.
//
// Failure: the methods have no error; a store that cannot read must stop its owner, not invent an absence.
type Store interface {
	// Promise returns the promise as stored, not projected to a time ([Promise.At]).
	Promise(id string) (Promise, bool)
	// PutPromise creates or replaces the promise of p.ID.
	PutPromise(p Promise)

	// Task returns the task as stored.
	Task(id string) (Task, bool)
	// PutTask creates or replaces the task of t.ID.
	PutTask(t Task)

	// Callbacks returns the awaiters of a promise.
	Callbacks(awaited string) []string
	// AddCallback makes awaiter wait for awaited; adding it again changes nothing.
	AddCallback(awaited, awaiter string)
	// RemoveCallback undoes AddCallback; the removal of a missing callback changes nothing.
	RemoveCallback(awaited, awaiter string)
	// AwaitedBy returns the promises whose callback set holds awaiter.
	AwaitedBy(awaiter string) []string

	// Listeners returns the addresses to notify when the promise settles. A store whose owner notifies them itself, in
	// parts ([Objects].Notifies), returns none.
	Listeners(id string) []string
	// AddListener adds an address; adding it again changes nothing.
	AddListener(id, address string)
	// ClearListeners removes all addresses of the promise.
	ClearListeners(id string)
}
