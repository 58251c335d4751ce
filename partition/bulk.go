package partition

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Large commands take the disk, the network and the processor of every replica for as long as dozens of small ones.
// So a node lets bulkBytes of them into its logs at a time, all partitions together; one always goes, however large.
// While clients' small commands come too, a large one is followed by a pause of bulkPause times what it took, at most
// bulkMaxPause, and less when many wait: all that wait are through within bulkMaxWait, and what they take themselves.
// So large ones take a fraction of the time then, and all of it when nobody else wants any.
const (
	bulkBytes    = 4 << 20
	bulkPause    = 16
	bulkMaxPause = 2 * time.Second
	bulkMaxWait  = 10 * time.Second
)

// bulk is what the node's partitions share to take turns with large commands: first come, first served. Its methods
// may be called from any goroutine.
type bulk struct {
	clock Clock
	sem   *semaphore.Weighted
	// waiting counts the large commands that wait for their turn.
	waiting atomic.Int64
	// small is when an entry of small commands was last made for a client.
	small atomic.Pointer[time.Time]
}

func newBulk(clock Clock) *bulk {
	return &bulk{clock: clock, sem: semaphore.NewWeighted(bulkBytes)}
}

// acquire waits for the turn of a large command, until ctx ends. release ends the turn.
func (b *bulk) acquire(ctx context.Context, bytes int64) (release func(), err error) {
	share := min(bytes, bulkBytes)
	if err := b.sem.Acquire(ctx, share); err != nil {
		return nil, err
	}
	return func() { b.sem.Release(share) }, nil
}

// noteSmall says that an entry of small commands was made for a client.
func (b *bulk) noteSmall() {
	now := b.clock.Now()
	b.small.Store(&now)
}

// pause is how long the turn of a large command lasts after its end.
func (b *bulk) pause(began time.Time) time.Duration {
	if at := b.small.Load(); at == nil || at.Before(began) {
		return 0
	}
	most := min(bulkMaxPause, bulkMaxWait/time.Duration(max(b.waiting.Load(), 1)))
	return min(bulkPause*b.clock.Now().Sub(began), most)
}

// bulkLoop lets the large commands of a partition through to the proposer, in order.
func (r *Replica) bulkLoop() {
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
			if p.lead != r.serving() { // it is refused at once
				r.pending.admit(p)
				continue
			}
			release, err := r.bulk.acquire(ctx, p.reserved.bytes)
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
