package recovery

// Execute notifies Target's workers of a pending task, which one of them should acquire at Version. It may be
// sent any number of times.
type Execute struct {
	ID          string
	Incarnation uint64
	Version     uint64
	Target      string
}

// Unblock notifies one listener of a settled promise.
type Unblock struct {
	Address string
	Promise Promise
}

// Effects are an operation's notifications to the outside. They are facts about the written state; nothing in
// the state depends on their delivery.
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

// Empty reports whether there are no notifications.
func (e Effects) Empty() bool { return len(e.Executes) == 0 && len(e.Unblocks) == 0 }

func executes(t Task) Effects { return Effects{Executes: []Execute{t.execute()}} }
