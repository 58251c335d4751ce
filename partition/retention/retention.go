// Package retention purges what ended longer ago than the node's policy keeps it, or is more than it keeps of a function, in
// the partitions that the node leads.
//
// A count is of each function in each namespace, and of the promises of no execution in each namespace. It is the cluster's: each
// partition keeps its part of it, rounded up, the latest to end. What ended in the same millisecond as the last one that is kept
// is kept, too. A client promise is deleted, and counts, once no promise is below it and all above it are settled.
//
// It owns the policy and the pace: it reads a partition's listing and its promises in pieces, at a bounded share of the time and in a
// few partitions at once, and proposes purges of what is over, many in one command. It spreads them over the time between two rounds.
// It proposes a single purge for each that such a command leaves: the execution has too many entries, or other executions belong to it.
// The state machine checks each again and deletes it. A crash loses only the position and what rounds have left; the next round reads
// everything.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/internal/clock"
)

const (
	// pieceKeys bounds the keys that one piece reads, pieceEnded what it finds.
	pieceKeys  = 2048
	pieceEnded = machine.MaxPurges
	// atOnce is over how many partitions a round goes at once. Each waits for its log most of the time.
	atOnce = 4
	// wholeEvery is in which round all is read: the promises, to which no index leads, and the whole listing, of which other rounds
	// read only where the round before has left something. promisesEvery is how many rounds the promises wait at most: twice as many
	// after each round that has found none to purge.
	wholeEvery    = 30
	promisesEvery = 8 * wholeEvery
	// proposeWithin bounds a purge's wait for the log.
	proposeWithin = 10 * time.Second
)

// Replica is a partition as the retention sees it.
type Replica interface {
	ID() uint32
	// Serving reports whether this node leads the partition.
	Serving() bool
	View(func(state.Reader) error) error
	// Peek is View for a piece of a listing. It may run the function again.
	Peek(func(state.Reader) error) error
	// Gate refuses a command that some member may not know.
	Gate(cmd *commandv1.Command) *api.Error
	// Propose blocks until the command is applied or ctx ends.
	Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error)
}

// Options are New's.
type Options struct {
	Policy Policy
	// Partitions is the number of the cluster's, among which counts are divided.
	Partitions func() int
	Interval   time.Duration // between the beginnings of two rounds
	Replicas   func() []Replica
	// Purged is called with the partition and the number of what was purged, Waiting with how much of what the last round
	// over a partition found was not. Neither may block; nil for none.
	Purged, Waiting func(partition uint32, n int)

	Clock    clock.Clock
	Log      *slog.Logger
	Lifetime context.Context // ends when the node begins to stop
}

// Retention purges in the background.
type Retention struct {
	o Options

	mu sync.Mutex
	// purged counts since the start; idle is why the last round purged nothing although it should.
	purged uint64
	idle   string
	// partitions is what rounds know of each; one round at a time goes over a partition.
	partitions map[uint32]*progress
}

// progress is what rounds know of a partition: of executions, and of promises.
type progress struct {
	// waiting is what was found and not purged. Retention.mu guards it.
	waiting [2]int
	// found is how much the last round has found.
	found [2]int
	// turn is the scope from which on the next pass counts.
	turn [2]string
	// again is of executions.
	again query.Again
	// promises is the first round that reads the promises again, and their last wait.
	promises, waited int
}

// New makes the retention of a node.
func New(o Options) *Retention {
	return &Retention{o: o, partitions: map[uint32]*progress{}}
}

// kinds are what a round goes over, in the order of progress's elements.
var kinds = [2]query.Search{query.EndedExecutions, query.EndedPromises}

// Run purges round after round, and blocks until Lifetime ends. It returns at once if the policy keeps everything.
func (x *Retention) Run() {
	rules := x.o.Policy.Rules()
	if len(rules) == 0 || x.o.Interval <= 0 {
		x.o.Log.Info("what has ended is kept forever", "event", "retention_off")
		return
	}
	x.o.Log.Info("what has ended is purged after its retention", "event", "retention_on", "rules", strings.Join(rules, ","), "interval", x.o.Interval)
	wait := x.o.Interval
	var rounds sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for n := 0; x.pause(wait); n++ {
		begun := x.o.Clock.Now()
		idle := ""
		replicas := x.o.Replicas()
		led := 0
		for _, r := range replicas {
			if r.Serving() {
				led++
			}
		}
		within := x.within(led)
		for i, r := range replicas {
			may := r.Gate(&commandv1.Command{Kind: &commandv1.Command_Purge{Purge: &perdurev1.PurgeRequest{}}})
			if may != nil && r.Serving() {
				idle = may.Message
			}
			places <- struct{}{}
			rounds.Go(func() {
				defer func() { <-places }()
				x.both(r, n, may == nil, within, float64(i)/float64(len(replicas)))
			})
		}
		rounds.Wait()
		x.setIdle(idle)
		wait = max(x.o.Interval-x.o.Clock.Now().Sub(begun), 0)
	}
}

// within is the time over which a round over one of so many partitions spreads its purges: as many rounds as atOnce allows go at once.
func (x *Retention) within(led int) time.Duration {
	turns := max((led+atOnce-1)/atOnce, 1)
	return time.Duration(spread * float64(min(x.o.Interval, spreadMost)) / float64(turns))
}

// both goes over the executions of a partition, and over its promises when it is time. Without permission to purge it only counts. It
// spreads its purges over a time, and begins with a part of a pause: not all partitions purge at the same moments.
func (x *Retention) both(r Replica, n int, may bool, within time.Duration, part float64) {
	known := x.of(r.ID())
	if !r.Serving() {
		known.promises, known.waited = 0, 0
	}
	for kind, search := range kinds {
		if kind == 1 && n < known.promises {
			continue
		}
		if kind == 0 {
			search = known.again.Begin(n%wholeEvery == 0)
		}
		var newest *newest
		if !x.o.Policy.counts.only(keepAll) {
			newest = x.countNewest(r, kind)
		}
		p := newPace(x.o.Clock.Now(), within, known.found[kind])
		if first := time.Duration(part * float64(p.of(pieceEnded))); first > 0 && known.found[kind] > 0 && r.Serving() && !x.pause(first) {
			return
		}
		found, waiting, _ := x.round(r, search, newest, may, p)
		known.found[kind] = found
		x.waits(r.ID(), known, kind, waiting)
		if kind == 1 && r.Serving() {
			known.later(n)
		}
	}
}

// later has the promises, which round n has read, wait.
func (known *progress) later(n int) {
	if known.found[1] > 0 {
		known.waited = 0
	}
	known.waited = min(max(2*known.waited, wholeEvery), promisesEvery)
	known.promises = n + known.waited
}

// of is what rounds know of a partition.
func (x *Retention) of(partition uint32) *progress {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.partitions[partition]
	if known == nil {
		known = &progress{}
		x.partitions[partition] = known
	}
	return known
}

// waits notes what a round over a partition has left.
func (x *Retention) waits(partition uint32, known *progress, kind, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known.waiting[kind] = n
	if x.o.Waiting != nil {
		x.o.Waiting(partition, known.waiting[0]+known.waiting[1])
	}
}

// setIdle notes why nothing is purged, and logs it when that changes.
func (x *Retention) setIdle(why string) {
	x.mu.Lock()
	was := x.idle
	x.idle = why
	x.mu.Unlock()
	switch {
	case was == "" && why != "":
		x.o.Log.Warn("retention purges nothing", "event", "retention_idle", "reason", why)
	case was != "" && why == "":
		x.o.Log.Info("retention purges again", "event", "retention_resumed")
	}
}

// Status says what is in force, and what it has done since the start.
func (x *Retention) Status() *perdurev1.RetentionStatus {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := &perdurev1.RetentionStatus{Rules: x.o.Policy.Rules(), Purged: x.purged, Idle: x.idle}
	for _, known := range x.partitions { //lint:sorted it is a sum
		out.Waiting += uint64(known.waiting[0] + known.waiting[1])
	}
	return out
}

// pause waits for d; false if the node stops.
func (x *Retention) pause(d time.Duration) bool {
	c, stop := x.o.Clock.After(d)
	defer stop()
	select {
	case <-c:
		return true
	case <-x.o.Lifetime.Done():
		return false
	}
}

// round goes over one partition, if this node leads it. It returns how much it found, and of that did not purge; ok is false if the
// round has not reached the end. Without permission to purge it only counts.
func (x *Retention) round(r Replica, search query.Search, newest *newest, may bool, p pace) (total, waiting int, ok bool) {
	var from []byte
	purged := 0
	defer func() {
		if purged > 0 {
			x.o.Log.Info("purged what is no longer kept", "event", "retention_purged", "partition", r.ID(), "purged", purged)
		}
	}()
	for r.Serving() {
		begun := x.o.Clock.Now()
		var found []query.Ended
		var next []byte
		err := r.Peek(func(s state.Reader) (err error) {
			now, err := state.MetaNumber(s, state.MetaClock)
			if err != nil {
				return err
			}
			// A partition without entries has an old clock; the entry of a purge brings it the node's.
			at := at{x.o.Policy, max(int64(now), x.o.Clock.Now().UnixMilli()), newest}
			found, next, err = search(s, from, pieceKeys, pieceEnded, at)
			return err
		})
		from = next
		if err != nil {
			x.o.Log.Warn("retention cannot read a state", "event", "retention_failed", "partition", r.ID(), "error", err)
			return total, waiting, false
		}
		n, ok := 0, true
		if may {
			n, ok = x.purge(r, found)
		}
		total += len(found)
		purged += n
		waiting += len(found) - n
		x.count(r.ID(), n)
		now := x.o.Clock.Now()
		if !ok || from == nil || !x.pause(p.pause(now, now.Sub(begun), len(found))) {
			return total, waiting, ok && from == nil
		}
	}
	return 0, 0, false
}

// countNewest finds the newest of a kind that have a count, in pieces; nil if it did not reach the end.
func (x *Retention) countNewest(r Replica, kind int) *newest {
	known := x.of(r.ID())
	n := newNewest(x.o.Policy, x.o.Partitions(), known.turn[kind])
	var from []byte
	for r.Serving() {
		begun := x.o.Clock.Now()
		err := r.View(func(s state.Reader) (err error) {
			from, err = kinds[kind].Visit(s, from, pieceKeys, x.o.Policy.countsIn, n.see)
			return err
		})
		switch {
		case err != nil:
			x.o.Log.Warn("retention cannot read a state", "event", "retention_failed", "partition", r.ID(), "error", err)
			return nil
		case from == nil:
			known.turn[kind] = n.until
			return n
		}
		now := x.o.Clock.Now()
		if !x.pause(pace{}.pause(now, now.Sub(begun), 0)) {
			return nil
		}
	}
	return nil
}

// count notes what was purged.
func (x *Retention) count(partition uint32, n int) {
	if n == 0 {
		return
	}
	x.mu.Lock()
	x.purged += uint64(n)
	x.mu.Unlock()
	if x.o.Purged != nil {
		x.o.Purged(partition, n)
	}
}

// purge proposes the purges of a piece. It returns how many are gone; ok is false when the round has to end.
func (x *Retention) purge(r Replica, found []query.Ended) (purged int, ok bool) {
	ctx, cancel := context.WithTimeout(x.o.Lifetime, proposeWithin)
	defer cancel()
	if r.Gate(&commandv1.Command{Kind: &commandv1.Command_PurgeMany{}}) == nil {
		if purged, found, ok = purgeMany(ctx, r, found); !ok {
			return purged, false
		}
	}
	single, ok := purgeEach(ctx, r, found)
	return purged + single, ok
}

// request is the purge of what was found.
func request(e query.Ended) *perdurev1.PurgeRequest {
	return &perdurev1.PurgeRequest{Id: e.ID, EndedBeforeMs: e.EndedMS + 1}
}

// mayFollow reports whether a refusal of a purge does not end the round.
func mayFollow(r Replica, err error) bool {
	var refused *api.Error
	return errors.As(err, &refused) && (refused.Reason == perdurev1.Reason_REASON_RULE_BROKEN ||
		refused.Reason == perdurev1.Reason_REASON_TRY_LATER && r.Serving())
}

// purgeMany proposes commands of many purges, one after the other. It returns how many are gone, and those that such commands leave
// to purges of their own; ok is false when the round has to end.
func purgeMany(ctx context.Context, r Replica, found []query.Ended) (purged int, left []query.Ended, ok bool) {
	for len(found) > 0 {
		many := &commandv1.PurgeMany{Class: uint32(found[0].Class), CreatedMs: found[0].CreatedMS}
		for _, e := range found {
			if len(many.Purges) == machine.MaxPurges || e.Namespace != found[0].Namespace {
				break
			}
			many.Purges = append(many.Purges, request(e))
		}
		if r.Gate(&commandv1.Command{Kind: &commandv1.Command_PurgeMany{PurgeMany: many}}) != nil {
			many.Purges = many.Purges[:min(len(many.Purges), machine.FewPurges)]
		}
		reply, err := r.Propose(ctx, &commandv1.Command{Namespace: found[0].Namespace, Kind: &commandv1.Command_PurgeMany{PurgeMany: many}})
		states := reply.GetPurgeMany().GetStates()
		if err != nil || len(states) == 0 || len(states) > len(many.Purges) {
			return purged, nil, false
		}
		for i, s := range states {
			if s == perdurev1.PurgeState_PURGE_STATE_LEFT {
				left = append(left, found[i])
			} else {
				purged++
			}
		}
		found = found[len(states):]
	}
	return purged, left, true
}

// purgeEach proposes a purge for each of what was found, together, so that they share log entries.
func purgeEach(ctx context.Context, r Replica, found []query.Ended) (purged int, ok bool) {
	outcomes := make(chan error, len(found))
	for _, e := range found {
		go func() {
			_, err := r.Propose(ctx, &commandv1.Command{Namespace: e.Namespace, Id: e.ID, Kind: &commandv1.Command_Purge{Purge: request(e)}})
			outcomes <- err
		}()
	}
	ok = true
	for range found {
		switch err := <-outcomes; {
		case err == nil:
			purged++
		case mayFollow(r, err):
			// It has an open child, say: a later round finds it again.
		default:
			ok = false
		}
	}
	return purged, ok
}
