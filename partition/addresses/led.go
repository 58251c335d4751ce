package addresses

import (
	"context"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
)

// Bounds of what a partition has under way.
const (
	// maxInFlight bounds the unblocks that were chosen and that the state still has, reportBatch those of one report.
	maxInFlight = 1024
	reportBatch = 256
	// reportDelay is how long delivered unblocks gather for a report: each report is an entry of the log. A partition whose
	// leadership ends meanwhile sends them again.
	reportDelay = 50 * time.Millisecond
	// retryMin and retryMax bound the pause before what was not delivered is offered again, and between two attempts of a
	// report. It doubles with each failure of the same group or host.
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
	// askTimeout bounds one read or report.
	askTimeout = 10 * time.Second
)

// led is a partition that this node leads. The dispatcher's lock guards it.
//
//	len(flying) <= maxInFlight; waiting and landed are among flying
type led struct {
	d      *Dispatcher
	lead   Leadership
	ctx    context.Context
	cancel context.CancelFunc

	// flying are the unblocks from their choice until they have failed, or the partition has forgotten them. waiting are
	// to be sent, landed are delivered and to be reported.
	flying          map[Unblock]bool
	waiting, landed []Unblock
	// sending, reporting and offering: a goroutine does so.
	sending, reporting, offering bool
	// offers are to be made; wake has offer look again. pauses are of groups and hosts that have failed.
	offers map[group]*offer
	wake   chan struct{}
	pauses map[group]time.Duration
}

func newLed(d *Dispatcher, lead Leadership) *led {
	l := &led{d: d, lead: lead, flying: map[Unblock]bool{}, offers: map[group]*offer{}, wake: make(chan struct{}, 1), pauses: map[group]time.Duration{}}
	l.ctx, l.cancel = context.WithCancel(d.ctx)
	return l
}

// end forgets the partition; what its goroutines do afterwards changes nothing.
func (l *led) end() {
	l.cancel()
	for number, f := range l.d.flights {
		if f.led == l {
			delete(l.d.flights, number)
		}
	}
}

// unblock sends an unblock unless it is under way. false: too many are; an offer sends it later.
func (l *led) unblock(u Unblock) bool {
	if l.flying[u] {
		return true
	}
	if len(l.flying) >= maxInFlight {
		l.schedule(groupOf(u), l.d.env.Clock.Now().Add(offerEvery), false)
		return false
	}
	l.flying[u] = true
	l.waiting = append(l.waiting, u)
	if !l.sending {
		l.sending = l.d.spawn(l.send)
	}
	return true
}

// send reads the promises of unblocks and queues them, until none waits.
func (l *led) send() {
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(l.waiting) > 0 && l.ctx.Err() == nil {
		u := l.waiting[0]
		l.waiting = l.waiting[1:]
		d.mu.Unlock()
		promise, err := l.read(u)
		d.mu.Lock()
		switch {
		case api.Is(err, perdurev1.Reason_REASON_PROMISE_NOT_FOUND):
			l.land(u) // it was deleted
		case err != nil:
			l.failed(u)
		default:
			l.sendOne(u, promise)
		}
	}
	l.sending = false
}

// read reads the promise of an unblock. It blocks.
func (l *led) read(u Unblock) (*perdurev1.Promise, error) {
	ctx, cancel := context.WithTimeout(l.ctx, askTimeout)
	defer cancel()
	return l.lead.Promise(ctx, u.Namespace, u.ID)
}

// sendOne queues an unblock for its receiver.
func (l *led) sendOne(u Unblock, promise *perdurev1.Promise) {
	d, to := l.d, parse(u.Address)
	if !d.reaches(u.Namespace, to) {
		delete(l.flying, u) // the next stream of the address has it offered
		return
	}
	m := &commandv1.AddressMessage{Namespace: u.Namespace, Address: u.Address, Kind: &commandv1.AddressMessage_Unblock{Unblock: promise}}
	d.last++
	number := d.last
	f, sent := flight{led: l, unblock: u}, false
	if to.scheme == schemeHTTP {
		sent = d.push(m, func(accepted bool) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.metrics.ended(m, accepted)
			d.landed(number, accepted)
		})
	} else {
		f.session, sent = d.send(m, to, number)
	}
	if !sent {
		d.metrics.ended(m, false)
		l.failed(u)
		return
	}
	d.flights[number] = f
}

// landed ends a flight. The lock is held.
func (d *Dispatcher) landed(number uint64, ok bool) {
	f, known := d.flights[number]
	delete(d.flights, number)
	switch {
	case !known: // the leadership is over
	case ok:
		f.led.land(f.unblock)
	default:
		f.led.failed(f.unblock)
	}
}

// land has a delivered unblock reported to the partition.
func (l *led) land(u Unblock) {
	delete(l.pauses, groupOf(u))
	l.landed = append(l.landed, u)
	if !l.reporting {
		l.reporting = l.d.spawn(l.report)
	}
}

// report has the partition forget delivered unblocks, until there are none.
func (l *led) report() {
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	pause := retryMin
	for len(l.landed) > 0 && l.ctx.Err() == nil {
		if len(l.landed) < reportBatch {
			d.mu.Unlock()
			clock.Wait(l.ctx, d.env.Clock, reportDelay)
			d.mu.Lock()
		}
		batch := l.landed[:min(len(l.landed), reportBatch)]
		d.mu.Unlock()
		ctx, cancel := context.WithTimeout(l.ctx, askTimeout)
		err := l.lead.Delivered(ctx, batch)
		cancel()
		if err != nil {
			clock.Wait(l.ctx, d.env.Clock, pause)
			pause = min(2*pause, retryMax)
		}
		d.mu.Lock()
		if err == nil {
			pause = retryMin
			for _, u := range batch {
				delete(l.flying, u)
			}
			l.landed = l.landed[len(batch):]
		}
	}
	l.reporting = false
}

// failed forgets an unblock that was not delivered; an offer sends it again.
func (l *led) failed(u Unblock) {
	delete(l.flying, u)
	l.later(groupOf(u))
}

// groupOf is the group of an unblock's address; of an HTTP address its host.
func groupOf(u Unblock) group { return parse(u.Address).groupIn(u.Namespace) }

func (t target) groupIn(namespace string) group {
	if t.scheme == schemeHTTP {
		return group{namespace, httpGroup + t.host}
	}
	return group{namespace, t.group}
}
