package recovery

// Execute says that a task is pending: some worker of Target should acquire it at Version. It may be
// sent any number of times.
type Execute struct {
	ID          string
	Incarnation uint64
	Version     uint64
	Target      string
}

// Unblock says to one listener that a promise is settled.
type Unblock struct {
	Address string
	Promise Promise
}

// Effects are what an operation wants told to the outside. They are facts about the state that was
// written; nothing in the state depends on whether they are delivered.
type Effects struct {
	// Executes are in the order in which the tasks became pending.
	Executes []Execute
	// Unblocks are in the order of the addresses within one promise.
	Unblocks []Unblock
}

// Add appends the effects of a later operation.
func (e *Effects) Add(more Effects) {
	e.Executes = append(e.Executes, more.Executes...)
	e.Unblocks = append(e.Unblocks, more.Unblocks...)
}

// Empty reports whether there is nothing to tell.
func (e Effects) Empty() bool { return len(e.Executes) == 0 && len(e.Unblocks) == 0 }

func executes(t Task) Effects { return Effects{Executes: []Execute{t.execute()}} }
