package group

import (
	"math"
	"time"
)

// maxGather bounds how long commands wait for others while the log is free.
const maxGather = 10 * time.Millisecond

// amplyShared is how many commands share an entry so that it costs little for each of them. So many wait neither for more nor for
// the entry in flight: while that is written, the machine and the workers are free to work on these.
const amplyShared = maxEntryCommands / 2

// pacer decides when the next entry is made. An entry of one command costs the replicas almost as much as one of
// thirty, so commands share entries where no caller waits longer for it:
//
//   - While an entry of several small commands is in flight, another one is made only of amplyShared or more. One of a single
//     command may be followed by any: few callers are there, and they may wait for each other.
//   - Callers whose commands were answered tend to come back with their next ones. So an entry waits until as many
//     commands have come as were answered and queued when the last one landed, but no more than amplyShared, for as long as that
//     took, maxGather at most.
//
// A lone caller's command leaves at once: it is all that is expected. The proposer's loop is
//
//	for {
//		d := p.next(now)           // wait until d is met, or an entry lands
//		p.launch(lane, commands)   // an entry was given to the log
//		p.land(now, l, queued)     // its commands are answered; queued small ones wait
//	}
//
//	0 <= inFlight[small] + inFlight[admitted] <= maxInFlight
//	0 <= expected <= amplyShared
//
// It has no clock and no lock.
type pacer struct {
	inFlight [lanes]int
	// flying counts the small commands in flight.
	flying int
	// Before gathered, expected small commands make an entry.
	expected int
	gathered time.Time
}

// landing is an entry that is over. It is of the moment before its commands are answered: a caller that is back when the
// proposer hears of it must not count twice.
type landing struct {
	lane     lane
	commands int
	queued   int // small commands, then
	took     time.Duration
}

// demand is what makes the next entry: so many small commands, as many bytes of them as an entry takes, or a large one.
type demand struct {
	small int
	// until is when the demand falls; zero if it stays until an entry lands.
	until time.Time
}

// noEntry is the demand while no entry can be made.
const noEntry = math.MaxInt

func (p *pacer) launch(l lane, commands int) {
	p.inFlight[l]++
	if l == small {
		p.flying += commands
	}
}

func (p *pacer) land(now time.Time, l landing) {
	p.inFlight[l.lane]--
	if l.lane == small {
		p.flying -= l.commands
		p.expected = min(l.commands+l.queued, amplyShared)
		p.gathered = now.Add(min(l.took, maxGather))
	}
}

func (p *pacer) next(now time.Time) demand {
	switch {
	case p.inFlight[small]+p.inFlight[admitted] >= maxInFlight:
		return demand{small: noEntry}
	case p.flying > 1:
		return demand{small: amplyShared}
	case p.flying == 0 && p.expected > 1 && now.Before(p.gathered):
		return demand{small: p.expected, until: p.gathered}
	}
	return demand{small: 1}
}
