package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
)

const (
	// TransferTimeout bounds one transfer, until the new leader serves.
	TransferTimeout = 10 * time.Second
	// AskTimeout bounds the members' answers whether they can lead.
	AskTimeout = 500 * time.Millisecond
	// allTimeout bounds TransferAll, retryPause is its pause before a failed transfer is tried again.
	allTimeout = 2 * time.Second
	retryPause = 50 * time.Millisecond
	// retryAfter is how long a group is not transferred again to a server after that failed. In the library
	// (v1.7.3) a transfer that timed out leaves a request for the goroutine that replicates to that server.
	// If a second one finds it there, and the leadership ends before the transfer does, the group refuses
	// writes whenever this process leads it again.
	retryAfter = time.Minute
)

// ErrRetryLater reports that a transfer of the group to that server failed less than a minute ago.
var ErrRetryLater = errors.New("a transfer to that server failed less than a minute ago")

// Transfers moves groups that this node leads. Its methods are safe for concurrent use.
type Transfers struct {
	Options
	mu     sync.Mutex
	failed map[failedTransfer]time.Time // until when
}

type failedTransfer struct {
	group  uint32
	server string
}

// NewTransfers returns a Transfers. It has no goroutines of its own.
func NewTransfers(opts Options) *Transfers {
	return &Transfers{Options: opts, failed: map[failedTransfer]time.Time{}}
}

// Led returns the groups that this node leads.
func (t *Transfers) Led() []Group { return t.led() }

// Targets returns, for each group, the members that could take over its leadership now, in an order that spreads the
// groups over the members. It blocks for at most AskTimeout and omits members that do not answer.
func (t *Transfers) Targets(ctx context.Context, groups []Group) map[uint32][]*commandv1.DirectoryMember {
	var others []*commandv1.DirectoryMember
	for _, m := range t.Env.Members() {
		if m.ServerId != t.Server {
			others = append(others, m)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	status := make([]*commandv1.NodeStatus, len(others))
	var wg sync.WaitGroup
	for i, m := range others {
		wg.Go(func() {
			if st, err := t.Env.Ask(ctx, m); err == nil {
				status[i] = st
			}
		})
	}
	wg.Wait()
	out := map[uint32][]*commandv1.DirectoryMember{}
	for _, g := range groups {
		led := g.Status()
		for i := range others {
			i = (i + int(g.ID())) % len(others) // also of groups that are transferred one by one
			if mayLead(g.ID(), t.Server, led, status[i]) {
				out[g.ID()] = append(out[g.ID()], others[i])
			}
		}
	}
	return out
}

// Transfer moves a group that this node leads to a member. It blocks until this node does not lead any more, or ctx
// ends.
func (t *Transfers) Transfer(ctx context.Context, g Group, to *commandv1.DirectoryMember) error {
	key := failedTransfer{g.ID(), to.ServerId}
	t.mu.Lock()
	until := t.failed[key]
	t.mu.Unlock()
	began := t.Clock.Now()
	if began.Before(until) {
		return ErrRetryLater
	}
	err := g.Transfer(ctx, to.ServerId, t.Env.AddrOf(to.ServerId))
	switch {
	case err == nil:
		t.Log.Info("leadership transferred", "event", "leadership_transferred", "group", GroupName(g.ID()), "to", to.NodeId,
			"took", t.Clock.Now().Sub(began))
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
	default:
		t.mu.Lock()
		t.failed[key] = t.Clock.Now().Add(retryAfter)
		t.mu.Unlock()
		t.Log.Warn("cannot transfer leadership", "event", "leadership_transfer_failed", "group", GroupName(g.ID()), "to", to.NodeId, "error", err)
	}
	return err
}

// failedLately reports whether a transfer of a group failed within retryAfter.
func (t *Transfers) failedLately(group uint32, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, until := range t.failed {
		if key.group == group && now.Before(until) {
			return true
		}
	}
	return false
}

// TransferAll moves everything that this node leads, which serves meanwhile. It blocks until nothing is left, no member
// can take the rest, ctx ends or two seconds are over.
func (t *Transfers) TransferAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, allTimeout)
	defer cancel()
	for ctx.Err() == nil {
		led := t.led()
		if len(led) == 0 {
			return
		}
		targets := t.Targets(ctx, led)
		if len(targets) == 0 {
			return
		}
		var wg sync.WaitGroup
		for _, g := range led {
			wg.Go(func() {
				for _, m := range targets[g.ID()] {
					if t.Transfer(ctx, g, m) == nil {
						return
					}
				}
			})
		}
		wg.Wait()
		if len(t.led()) > 0 && !clock.Wait(ctx, t.Clock, retryPause) {
			return
		}
	}
}
