package membership

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Rejoining: a node tries each address at which a member should listen and none is known, for ever and
// regardless of gossip's state. This forms the cluster at the start. It also heals a split in which each side
// has declared the other dead, which memberlist alone never does.

// idleFactor times RejoinMax is the pause after a successful exchange with an address that showed no member
// there: it advertises another address, or is of another cluster.
const idleFactor = 6

// joinsAtOnce bounds the addresses that are tried at the same time.
const joinsAtOnce = 4

// attempt is what is known of one address.
type attempt struct {
	next   time.Duration // time of the next try, on the mono clock
	wait   time.Duration // the last pause
	failed bool          // and reported
}

func (g *Gossip) rejoinLoop(ctx context.Context) {
	attempts := make(map[string]*attempt)
	wait := time.Duration(0)
	for {
		next, stop := g.clock.After(wait)
		select {
		case <-ctx.Done():
			stop()
			return
		case <-g.rejoin:
			stop()
			// A member was lost. An address that had a member may have none now.
			for _, a := range attempts {
				a.next, a.wait = 0, 0
			}
		case <-next:
		}
		if !g.rejoinRound(ctx, attempts) {
			return
		}
		wait = g.untilNext(attempts)
	}
}

// untilNext returns the pause before the next try, unless a member is lost: RejoinMin at least, so that an
// address that fails at once is not tried in a busy loop.
func (g *Gossip) untilNext(attempts map[string]*attempt) time.Duration {
	now, pause := g.mono(), g.timing.RejoinMax
	for _, a := range attempts {
		pause = min(pause, a.next-now)
	}
	return max(pause, g.timing.RejoinMin)
}

// rejoinRound tries the addresses whose time has come; false ends the loop.
func (g *Gossip) rejoinRound(ctx context.Context, attempts map[string]*attempt) bool {
	g.mu.Lock()
	stop := g.left || g.closed
	addrs := slices.Clone(g.join)
	now := g.mono()
	for addr, l := range g.lost {
		if now-l.at > lostFor {
			delete(g.lost, addr)
		} else if !g.hasAddr(addr) {
			addrs = append(addrs, addr)
		}
	}
	g.mu.Unlock()
	if stop {
		return false
	}
	slices.Sort(addrs)
	addrs = slices.Compact(addrs)
	for addr := range attempts {
		if _, wanted := slices.BinarySearch(addrs, addr); !wanted {
			delete(attempts, addr)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, joinsAtOnce)
	for _, addr := range addrs {
		a := attempts[addr]
		if a == nil {
			a = new(attempt)
			attempts[addr] = a
		}
		if a.next > now {
			continue
		}
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			g.tryJoin(ctx, addr, a)
			<-slots
		}()
	}
	wg.Wait()
	return ctx.Err() == nil
}

// tryJoin exchanges views with an address, unless a known member is there, and sets the time of its next try.
func (g *Gossip) tryJoin(ctx context.Context, addr string, a *attempt) {
	targets, err := g.missing(ctx, addr)
	if err == nil && len(targets) == 0 {
		a.wait, a.next, a.failed = 0, g.mono()+g.timing.RejoinMax, false
		return
	}
	if err == nil {
		_, err = g.list.Join(targets)
		if first := errors.Unwrap(err); first != nil {
			err = first // memberlist puts a list with a heading around it
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		a.wait, a.failed = idleFactor*g.timing.RejoinMax, false
		a.next = g.mono() + a.wait
		return
	}
	a.wait = min(max(2*a.wait, g.timing.RejoinMin), g.timing.RejoinMax)
	a.next = g.mono() + a.wait
	level := slog.LevelDebug
	if !a.failed {
		a.failed, level = true, slog.LevelInfo
	}
	g.report.event(level, "join_failed", "no member to join at an address yet, will try again", "address", addr,
		"error", strings.Join(strings.Fields(err.Error()), " "))
}

// missing returns the addresses that addr resolves to and at which no living member is known.
func (g *Gossip) missing(ctx context.Context, addr string) ([]string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, ip := range ips {
		if target := net.JoinHostPort(ip.String(), port); !g.hasAddr(target) {
			out = append(out, target)
		}
	}
	return out, nil
}
