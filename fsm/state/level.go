package state

import (
	"fmt"
)

// A feature level is a set of formats and command kinds; each level contains those below it. FeatureLevel is the newest
// one that this program knows. A state at a higher level was written by a newer program and is refused.
//
// A state's level rises by RaiseLevel, or when a command of a higher level writes its first object.
const (
	LevelFirst  = 1
	LevelGraphs = 2 // graph runs
	LevelLeases = 3 // leases that a new leader gives their full time
	// LevelAnswers: a signal to another execution is completed in the sender's journal by the target's partition.
	LevelAnswers = 4
	// LevelReplies: stored replies hold no values of promises, and are bounded in bytes.
	LevelReplies = 5
	// LevelFunctions: entities and critical sections on them, executions with former incarnations, clean-up executions,
	// children with close policies, executions that await their own operations without rows for it, queued tasks without a
	// retry timer in the deadline index.
	LevelFunctions = 6
	LevelPurges    = 7 // purges of many executions by one command
	LevelLeaves    = 8 // headers that say that an execution is a leaf
	LevelInline    = 9 // headers that have the task and the journal of a short execution
	// LevelPromise: headers that also have the promise of a short execution, and purges of more executions by one command.
	LevelPromise = 10
	LevelOpen    = 11 // headers that have the journal of an open execution
)

// BaseLevel is the level that every member of a cluster knows: commands up to it need no gate.
const BaseLevel = LevelGraphs

// LevelError reports that a state or a cluster, as named by What, is at a feature level that this program does
// not know.
type LevelError struct {
	What         string
	Level, Known uint64
}

func (e *LevelError) Error() string {
	return fmt.Sprintf("%s is at feature level %d, this program knows up to %d: it was written by a newer version", e.What, e.Level, e.Known)
}

// CheckLevel returns a *LevelError if a state is at a level that this program does not know.
func CheckLevel(r Reader) error {
	level, err := Level(r)
	if err == nil && level > FeatureLevel {
		err = &LevelError{"the state", level, FeatureLevel}
	}
	return err
}
