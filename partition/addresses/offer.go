package addresses

import (
	"context"
	"strings"
	"time"

	"perdure/internal/clock"
)

// Bounds of offers.
const (
	// offerPage is how many tasks or unblocks one read lists; offerPause is between two pages.
	offerPage  = 100
	offerPause = 20 * time.Millisecond
	// offerEvery is between two offers to one group by one partition.
	offerEvery = 500 * time.Millisecond
	// maxPauses bounds the groups and hosts with a pause of their own.
	maxPauses = 4096
)

// httpGroup begins the name of the group of an HTTP host; no group of streams has a slash in its name. everyHost is
// the group of all of them, of all namespaces.
const httpGroup = "http/"

var everyHost = group{"", httpGroup}

// offer sends the streams of a group what waits for its addresses in one partition.
type offer struct {
	// at is when it is made, notBefore the earliest time for that.
	at, notBefore time.Time
	// tasks: it offers tasks, too; an offer because of failed unblocks does not.
	tasks bool
	// made: nothing is to be offered. The entry stays until at, since it holds notBefore.
	made bool
}

// offerAll has every partition that this node leads offer a group what waits. The lock is held.
func (d *Dispatcher) offerAll(g group) {
	for _, l := range d.led {
		l.offer(g)
	}
}

// offer offers a group tasks and unblocks, soon.
func (l *led) offer(g group) { l.schedule(g, l.d.env.Clock.Now(), true) }

// offerPushed offers every HTTP host the unblocks for it.
func (l *led) offerPushed() {
	if l.d.push != nil {
		l.schedule(everyHost, l.d.env.Clock.Now(), false)
	}
}

// later offers a group or host its unblocks again, after a pause that doubles from one failed offer to the next.
func (l *led) later(g group) {
	if o := l.offers[g]; o != nil && !o.made {
		return
	}
	pause := max(l.pauses[g], retryMin)
	if l.pauses[g] > 0 || len(l.pauses) < maxPauses {
		l.pauses[g] = min(2*pause, retryMax)
	} else {
		pause = retryMax
	}
	l.schedule(g, l.d.env.Clock.Now().Add(pause), false)
}

// schedule has an offer made at a time, or earlier if it is scheduled for then.
func (l *led) schedule(g group, at time.Time, tasks bool) {
	o := l.offers[g]
	if o == nil {
		o = &offer{made: true}
		l.offers[g] = o
	}
	if at.Before(o.notBefore) {
		at = o.notBefore
	}
	if o.made || at.Before(o.at) {
		o.at = at
	}
	o.tasks = tasks || o.tasks && !o.made
	o.made = false
	if !l.offering {
		l.offering = l.d.spawn(l.makeOffers)
	}
	signal(l.wake)
}

// makeOffers makes the scheduled offers, until there are none.
func (l *led) makeOffers() {
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(l.offers) > 0 && l.ctx.Err() == nil {
		g, next := group{}, (*offer)(nil)
		for key, o := range l.offers {
			if next == nil || o.at.Before(next.at) {
				g, next = key, o
			}
		}
		now := d.env.Clock.Now()
		switch {
		case next.at.After(now):
			c, stop := d.env.Clock.After(next.at.Sub(now))
			d.mu.Unlock()
			select {
			case <-c:
			case <-l.wake:
			case <-l.ctx.Done():
			}
			stop()
			d.mu.Lock()
		case next.made || !l.receives(g):
			delete(l.offers, g)
		default:
			tasks := next.tasks
			next.made, next.notBefore = true, now.Add(offerEvery)
			next.at = next.notBefore
			d.mu.Unlock()
			if g == everyHost {
				l.offerHosts()
			} else {
				l.offerGroup(g, tasks)
			}
			d.mu.Lock()
		}
	}
	l.offering = false
}

// receives reports whether a group has a receiver.
func (l *led) receives(g group) bool {
	if strings.HasPrefix(g.name, httpGroup) {
		return l.d.push != nil
	}
	return l.d.table.has(g)
}

// selections are the addresses of a group.
func selections(g group) []Address {
	if host, is := strings.CutPrefix(g.name, httpGroup); is {
		return []Address{{g.namespace, "http://" + host}, {g.namespace, "https://" + host}}
	}
	return []Address{{g.namespace, "poll://any@" + g.name}, {g.namespace, "poll://uni@" + g.name}}
}

// offerHosts schedules the offers of all HTTP hosts for which unblocks wait.
func (l *led) offerHosts() {
	ctx, cancel := context.WithTimeout(l.ctx, askTimeout)
	defer cancel()
	found, err := l.lead.HTTPAddresses(ctx, maxPauses)
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if err != nil {
		l.later(everyHost)
		return
	}
	for _, a := range found {
		if to := parse(a.Address); to.scheme == schemeHTTP {
			l.schedule(to.groupIn(a.Namespace), l.d.env.Clock.Now(), false)
		}
	}
}

// offerGroup sends what waits for a group, page by page, with a pause between two: executes of its pending tasks, if
// tasks is set, until the streams take no more, and unblocks, until too many are under way. The tasks' retry timers
// repeat the other executes; other unblocks are offered later.
func (l *led) offerGroup(g group, tasks bool) {
	for _, a := range selections(g) {
		executes, unblocks := tasks, true
		for of := (Selection{Address: a, Most: offerPage}); executes || unblocks; {
			ctx, cancel := context.WithTimeout(l.ctx, askTimeout)
			page, err := l.lead.Messages(ctx, of)
			cancel()
			if l.ctx.Err() != nil {
				return
			}
			l.d.mu.Lock()
			if err != nil {
				l.later(g)
				l.d.mu.Unlock()
				return
			}
			executes = executes && l.offerTasks(page.Executes) && len(page.NextExecutes) > 0
			unblocks = unblocks && l.offerUnblocks(g, page.Unblocks) && len(page.NextUnblocks) > 0
			l.d.mu.Unlock()
			of.Executes, of.Unblocks = page.NextExecutes, page.NextUnblocks
			if executes || unblocks {
				clock.Wait(l.ctx, l.d.env.Clock, offerPause)
			}
		}
	}
}

// offerTasks sends executes that have a receiver; false if a stream took no more.
func (l *led) offerTasks(tasks []Execute) bool {
	for _, e := range tasks {
		if l.d.hasStream(e.Namespace, parse(e.Address)) && !l.d.execute(e) {
			return false
		}
	}
	return true
}

// offerUnblocks sends unblocks that have a receiver; false if too many are under way.
func (l *led) offerUnblocks(g group, unblocks []Unblock) bool {
	for _, u := range unblocks {
		to := parse(u.Address)
		if to.groupIn(u.Namespace) != g || !l.d.hasStream(u.Namespace, to) {
			continue // another group whose name begins likewise, or a process without a stream
		}
		if !l.unblock(u) {
			return false
		}
	}
	return true
}

// hasStream reports whether a message for an address would find a receiver now. The lock is held.
func (d *Dispatcher) hasStream(namespace string, to target) bool {
	if to.scheme != schemePoll {
		return d.reaches(namespace, to)
	}
	return d.table.holds(namespace, to)
}
