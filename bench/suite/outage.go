package suite

import (
	"context"
	"time"

	"perdure/bench/load"
)

// outage is a leader that is killed and started again while a client measures.
type outage struct {
	killed time.Duration // since the window began
	done   chan struct{}
	err    error // read after done is closed
}

// kill kills the node that leads most partitions after a third of the window and starts it again after two thirds. A
// cluster of one node is started again at once.
func (s *stand) kill(ctx context.Context, window time.Duration) *outage {
	o := &outage{done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(o.done)
		o.err = o.run(ctx, s, began, window/3)
	}()
	return o
}

func (o *outage) run(ctx context.Context, s *stand, began time.Time, third time.Duration) error {
	time.Sleep(third)
	n, err := s.cluster.KillLeader(ctx)
	o.killed = time.Since(began)
	if err != nil {
		return err
	}
	if len(s.cluster.Addrs()) > 1 {
		time.Sleep(third)
	}
	if err := n.Restart(); err != nil {
		return err
	}
	return s.cluster.WaitReady(ctx)
}

// wait waits until the node serves again.
func (o *outage) wait() error {
	<-o.done
	return o.err
}

// longest returns the longest time without a completion since the kill, in milliseconds.
func (o *outage) longest(timeline []int64) float64 {
	most, now := 0, 0
	for i := int(o.killed / load.Slice); i < len(timeline); i++ {
		if now++; timeline[i] > 0 {
			now = 0
		}
		most = max(most, now)
	}
	return float64(most) * load.Slice.Seconds() * 1000
}
