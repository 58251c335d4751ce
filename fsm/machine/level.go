package machine

import (
	"fmt"

	commandv1 "perdure/api/command/v1"
)

// A feature level is a set of formats and command kinds; each level contains those below it. FeatureLevel is the newest
// one that this program knows. A state at a higher level was written by a newer program and is refused.
//
// A state's level rises by RaiseLevel, or when a command of a higher level writes its first object.
const (
	levelFirst  = 1
	levelGraphs = 2 // graph runs
	levelLeases = 3 // leases that a new leader gives their full time
	// levelAnswers: a signal to another execution is completed in the sender's journal by the target's partition.
	levelAnswers = 4
	// levelReplies: stored replies hold no values of promises, and are bounded in bytes.
	levelReplies = 5
)

// BaseLevel is the level that every member of a cluster knows: commands up to it need no gate.
const BaseLevel = levelGraphs

// LevelError says that a state, or a cluster, is at a feature level that this program does not know. What names it.
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

// LevelOf returns the feature level from which on a command may be proposed: that of its kind, or the level that it
// raises the state to. ok is false for a kind that this program does not know.
func LevelOf(cmd *commandv1.Command) (level uint64, ok bool) {
	r, ok := ruleOf(cmd)
	return max(r.level, cmd.GetRaiseLevel().GetLevel()), ok
}
