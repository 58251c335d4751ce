package disk

import "time"

// turnWait is how long a table of a compaction waits for its turn at most. A table takes a tenth of it when nothing else runs. So a
// compaction that hangs, or more of them than the turns allow for long, delays others and stops none.
const turnWait = time.Second

// turnsOf is how many tables compactions write at once, with so many cores. All partitions write alike, so all are compacted at the
// same time, and that takes seconds.
func turnsOf(cores int) int { return max(cores/2, 1) }

// A compaction is in no hurry unless another one waits for its turn, or memtables are flushed as fast as it writes. So it works for a
// third of the time: at full speed it takes half of two cores for a fifth of a second, during which every request takes longer. pauseFor
// bounds the age of a table of which writes pause, pauseMost one pause, and pauseFlushed the tables flushed meanwhile.
const (
	pauseFor     = time.Second
	pauseShare   = 1.0 / 3
	pauseMost    = 10 * time.Millisecond
	pauseFlushed = 4
)

// hurried reports whether the writes of a table pause no more.
func (t *table) hurried(now time.Time) bool {
	return !t.turn || !now.Before(t.pauses) || t.g.turnWaits.Load() > 0 || t.g.flushed.Load()-t.flushed >= pauseFlushed
}

// pause lets the table's writer pause for as long as its work since the last pause allows. It blocks for pauseMost at most.
func (t *table) pause(now time.Time) {
	if t.hurried(now) {
		return
	}
	if d := min(time.Duration(float64(now.Sub(t.worked))*(1-pauseShare)/pauseShare), pauseMost); d > 0 {
		t.g.pause(d)
	}
	t.worked = t.g.clock.Now()
}

// takeTurn blocks until a table of a compaction may be written, for turnWait at most. It reports whether endTurn has to be called.
func (g *Guard) takeTurn() bool {
	select {
	case g.turns <- struct{}{}:
		return true
	default:
	}
	g.turnWaits.Add(1)
	defer g.turnWaits.Add(-1)
	c, stop := g.clock.After(turnWait)
	defer stop()
	select {
	case g.turns <- struct{}{}:
		return true
	case <-c:
	case <-g.stop:
	}
	return false
}

// endTurn ends a turn.
func (g *Guard) endTurn() { <-g.turns }

// Close implements io.Closer. It ends the table's turn.
func (t *table) Close() error {
	if t.turn {
		t.turn = false
		t.g.endTurn()
	}
	return t.File.Close()
}
