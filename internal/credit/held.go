package credit

// Held are the tasks that a worker holds: the last version of each execution. HeldBy makes one.
type Held map[execution]version

type (
	execution struct{ namespace, id string }
	version   struct{ incarnation, version uint64 }
)

func (t Task) execution() execution { return execution{t.Namespace, t.ID} }
func (t Task) version() version     { return version{t.Incarnation, t.Version} }

// HeldBy makes a set of tasks.
func HeldBy(tasks ...Task) Held {
	h := Held{}
	for _, t := range tasks {
		h.Add(t)
	}
	return h
}

// Add notes that the worker holds this version of its execution's task, and no other.
func (h Held) Add(t Task) { h[t.execution()] = t.version() }

// Has reports whether the worker holds this version.
func (h Held) Has(t Task) bool {
	v, ok := h[t.execution()]
	return ok && v == t.version()
}

// Remove notes that the worker does not hold this version any more.
func (h Held) Remove(t Task) {
	if h.Has(t) {
		delete(h, t.execution())
	}
}
