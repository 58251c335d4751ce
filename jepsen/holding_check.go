package jepsen

import (
	"fmt"
	"time"
)

// Outage is a time in which the harness keeps a worker from renewing leases: from its kill or freeze until
// its restart or thaw. Others may get its tasks, also later.
type Outage struct {
	Worker   string
	From, To time.Time
}

// Holding says which workers held the tasks.
type Holding struct {
	// Tasks came to workers; Kept of them were held by one worker across a fault of a node.
	Tasks, Kept int
	// Moved counts tasks that continued at another worker because their holder was hit, GivenBack those that
	// their holder released.
	Moved, GivenBack int
	// Again came to the same process a second time.
	Again int
	// Taken went to another worker although the one that held them was running.
	Taken []string
}

// CheckHolding checks which workers held the tasks of executions that never wait. Such a task comes to one
// worker, and to another only when the first was hit or released it. A running worker renews its leases, for
// any leader. notes are in the order of time; breaks are when nodes were hit.
func CheckHolding(notes []StepNote, outages []Outage, breaks []time.Time) Holding {
	var h Holding
	type holder struct {
		worker      string
		process     int
		since       time.Time
		back, kept  bool
		lost, acted bool
	}
	hit := func(by *holder, at time.Time) bool {
		for _, o := range outages {
			if o.Worker == by.worker && !o.From.After(at) && !o.To.Before(by.since) {
				return true
			}
		}
		return false
	}
	holders := map[string]*holder{}
	for _, n := range notes {
		by := holders[n.Execution]
		same := by != nil && by.worker == n.Worker && by.process == n.PID
		switch n.Kind {
		case NoteTask:
			h.Tasks++
			switch {
			case by == nil:
			case by.back:
				h.GivenBack++
			case same:
				h.Again++
			case hit(by, n.At):
				h.Moved++
			default:
				h.Taken = append(h.Taken, fmt.Sprintf("%s came to %s (process %d) at %s, and %s (process %d) has held it since %s and runs; "+
					"reported as lost: %v, begun: %v", n.Execution, n.Worker, n.PID, clockTime(n.At), by.worker, by.process, clockTime(by.since),
					by.lost, by.acted))
			}
			holders[n.Execution] = &holder{worker: n.Worker, process: n.PID, since: n.At}
		case NoteBack, NoteLost:
			if same {
				by.back, by.lost = by.back || n.Kind == NoteBack, by.lost || n.Kind == NoteLost
			}
		default:
			if !same {
				continue
			}
			by.acted = true
			for _, at := range breaks {
				if !by.kept && by.since.Before(at) && n.At.After(at) {
					by.kept = true
					h.Kept++
				}
			}
		}
	}
	return h
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05.000") }
