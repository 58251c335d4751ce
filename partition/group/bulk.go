package group

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"perdure/internal/clock"
)

// A large command occupies the disk, the network and the processor of every replica as long as dozens of
// small ones.
//
//	bytes of large commands in flight at a node <= bulkBytes, or one command of any size
//	pause after a large command                 <= min(bulkPause * its duration, bulkMaxPause, bulkMaxWait / waiting)
//
// A large command is followed by a pause only while clients' small commands come too. The last bound lets all
// that wait through within bulkMaxWait plus their own durations. So large commands take a fraction of the
// node next to small ones, and all of it otherwise.
const (
	bulkBytes    = 4 << 20
	bulkPause    = 16
	bulkMaxPause = 2 * time.Second
	bulkMaxWait  = 10 * time.Second
)

// bulk admits the large commands of all partitions of a node, first come, first served. It is safe for
// concurrent use.
type bulk struct {
	clock clock.Clock
	sem   *semaphore.Weighted
	// waiting counts the large commands that are not admitted yet.
	waiting atomic.Int64
	// small is when an entry of small commands was last made for a client.
	small atomic.Pointer[time.Time]
}

func newBulk(c clock.Clock) *bulk {
	return &bulk{clock: c, sem: semaphore.NewWeighted(bulkBytes)}
}

// acquire blocks until a large command is admitted, or ctx ends. The caller calls release after the command's
// pause.
func (b *bulk) acquire(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, bulkBytes)
	if err := b.sem.Acquire(ctx, share); err != nil {
		return nil, err
	}
	return func() { b.sem.Release(share) }, nil
}

// noteSmall records that an entry of small commands was made for a client.
func (b *bulk) noteSmall() {
	now := b.clock.Now()
	b.small.Store(&now)
}

// pause returns how long after a large command's end the next one must wait; began is when it was admitted.
func (b *bulk) pause(began time.Time) time.Duration {
	if at := b.small.Load(); at == nil || at.Before(began) {
		return 0
	}
	most := min(bulkMaxPause, bulkMaxWait/time.Duration(max(b.waiting.Load(), 1)))
	return min(bulkPause*b.clock.Now().Sub(began), most)
}

// bulkLoop admits a partition's large commands in order. It blocks until the replica stops.
func (r *proposer) bulkLoop() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-r.stopping
		cancel()
	}()
	for {
		select {
		case <-r.pending.wakeLarge:
		case <-r.stopping:
			return
		}
		for {
			p := r.pending.firstLarge()
			if p == nil {
				break
			}
			if p.lead != r.serving() { // the proposer refuses it at once
				r.pending.admit(p)
				continue
			}
			release, err := r.bulk.acquire(ctx, p.reserved.Bytes())
			if err != nil {
				return // the proposer answers what is queued
			}
			if !r.pending.admit(p) { // its caller has left
				release()
				continue
			}
			began := r.clock.Now()
			go func() {
				defer release()
				<-p.done
				c, stop := r.clock.After(r.bulk.pause(began))
				defer stop()
				select {
				case <-c:
				case <-r.stopping:
				}
			}()
		}
	}
}
