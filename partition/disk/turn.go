package disk

import "time"

// turnWait is how long a table of a compaction waits for its turn at most. A table takes a tenth of it when nothing else runs. So a
// compaction that hangs, or more of them than the turns allow for long, delays others and stops none.
const turnWait = time.Second

// turnsOf is how many tables compactions write at once, with so many cores. All partitions write alike, so all are compacted at the
// same time, and that takes seconds.
func turnsOf(cores int) int { return max(cores/2, 1) }

// takeTurn blocks until a table of a compaction may be written, for turnWait at most. It reports whether endTurn has to be called.
func (g *Guard) takeTurn() bool {
	select {
	case g.turns <- struct{}{}:
		return true
	default:
	}
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
