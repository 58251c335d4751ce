package rpc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition"
	"perdure/partition/workers"
)

// functionOfHTTP is the function whose executions are the attempts of graphs' HTTP nodes.
const functionOfHTTP = "$http"

// Bounds of an Outbound.
const (
	// outboundCalls bounds the calls in progress, over all namespaces.
	outboundCalls = 64
	// outboundIdle is how long a session without calls stays open.
	outboundIdle = time.Minute
	// outboundRest is how long a namespace keeps unused credit before another one may get it.
	outboundRest = 50 * time.Millisecond
)

// OutboundConfig configures an Outbound.
type OutboundConfig struct {
	NodeID string
	// Lease is how long tasks stay the node's own without a heartbeat.
	Lease time.Duration
	// Version is part of the User-Agent.
	Version string
	Logger  *slog.Logger
	// Policy limits the calls; its zero value refuses every call, which fails the node that asks for it.
	Policy OutboundPolicy
	// Idle is how long a session without calls stays open; 0 means a minute.
	Idle time.Duration
}

// Outbound runs the HTTP nodes of graphs: it is the worker of the function $http inside the node, for the partitions
// that the node leads, in every namespace that has such nodes. One task is one call; the graph's retry policy decides
// about another one. At most 64 calls are in progress.
//
// An answer with a status of 2xx completes the attempt, with the body as its result: JSON as it is, other text
// as a JSON string, other bytes as one in base64, nothing as null; 4 MiB at most. Everything else fails it, with a
// type that begins with "http_": the status ("http_503"), or "timeout", "connect", "tls", "redirects", "too_large",
// "broken", "request", "forbidden".
//
// A crash loses the calls in progress: when their leases expire, the leaders repeat them with the same idempotency key.
//
// Graphs choose the addresses, and the calls come from this machine, so Policy limits them: before a request
// is sent, at each redirect, and for each address that a connection is made to.
type Outbound struct {
	cfg        OutboundConfig
	log        *slog.Logger
	router     *partition.Router
	dispatcher *workers.Dispatcher
	client     *http.Client
	agent      string
	// id is the prefix of the sessions' worker ids.
	id string
	// sends is the context of all messages to partitions; endSends ends it when the last call has ended.
	sends    context.Context
	endSends context.CancelFunc

	// Lock order: mu, the dispatcher's lock, starvedMu.
	mu       sync.Mutex
	free     int // credit that no session has; negative while tasks were delivered beyond the credit
	sessions map[string]*outboundSession
	calls    map[string]*outboundCall
	over     bool
	// resting: a timer will call signal.
	resting bool

	starvedMu sync.Mutex
	starved   []string // namespaces whose tasks wait for credit, each once

	wake     chan struct{}
	stopping chan struct{}
	under    inflight // calls in progress
	wg       sync.WaitGroup

	closeOnce sync.Once
}

// outboundSession is the node's own session as a worker of one namespace.
type outboundSession struct {
	ns     string
	worker *workers.Worker
	// credit is the unused credit; granted is when it last got some, used when its last call ended.
	credit        int
	under         int
	granted, used time.Time
}

// ServeOutbound starts an Outbound. Close it before the partitions.
func ServeOutbound(cfg OutboundConfig, router *partition.Router, dispatcher *workers.Dispatcher) (*Outbound, error) {
	if cfg.Idle <= 0 {
		cfg.Idle = outboundIdle
	}
	start := make([]byte, 4)
	if _, err := rand.Read(start); err != nil {
		return nil, err
	}
	o := &Outbound{
		cfg: cfg, log: cfg.Logger, router: router, dispatcher: dispatcher, client: newOutboundClient(&cfg.Policy), agent: "perdure/" + strings.Trim(cfg.Version, "()"),
		id: functionOfHTTP + "@" + cfg.NodeID + "." + hex.EncodeToString(start), free: outboundCalls,
		sessions: map[string]*outboundSession{}, calls: map[string]*outboundCall{}, wake: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
	o.sends, o.endSends = context.WithCancel(context.Background())
	o.wg.Add(2)
	go o.granting()
	go o.beating()
	dispatcher.OnStarved(o.onStarved)
	return o, nil
}

// onStarved records that tasks of a namespace wait for credit. The dispatcher calls it under its lock; it
// does not block.
func (o *Outbound) onStarved(ns, function string) {
	if function != functionOfHTTP {
		return
	}
	o.starvedMu.Lock()
	if !slices.Contains(o.starved, ns) {
		o.starved = append(o.starved, ns)
	}
	o.starvedMu.Unlock()
	o.signal()
}

func (o *Outbound) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// granting grants credit to waiting namespaces and closes idle sessions, until Close.
func (o *Outbound) granting() {
	defer o.wg.Done()
	idle := time.NewTicker(max(o.cfg.Idle/4, time.Millisecond))
	defer idle.Stop()
	for {
		select {
		case <-o.wake:
			o.grantWaiting()
		case <-idle.C:
			o.retire()
		case <-o.stopping:
			return
		}
	}
}

// grantWaiting grants each waiting namespace its share of the free credit, in the order in which they began
// to wait. One share stays free for the next namespace.
func (o *Outbound) grantWaiting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.over {
		o.starvedMu.Lock()
		waiting := slices.Clone(o.starved)
		o.starvedMu.Unlock()
		if len(waiting) == 0 {
			return
		}
		ns := waiting[0]
		if o.free <= 0 {
			o.reclaim(ns)
		}
		if o.free <= 0 {
			return // the end of a call signals again
		}
		o.starvedMu.Lock()
		o.starved = o.starved[1:]
		o.starvedMu.Unlock()
		o.grant(ns, (o.free+len(waiting))/(len(waiting)+1))
	}
}

// grant grants a namespace credit.
func (o *Outbound) grant(ns string, n int) {
	o.free -= n
	now := time.Now()
	if s := o.sessions[ns]; s != nil {
		s.credit += n
		s.granted = now
		s.worker.AddCapacity(n)
		return
	}
	s := &outboundSession{ns: ns, credit: n, granted: now, used: now}
	s.worker = o.dispatcher.AttachOwn(workers.Spec{
		ID: o.id + "/" + ns, Namespace: ns, Functions: []string{functionOfHTTP}, LeaseMS: o.cfg.Lease.Milliseconds(), Capacity: n,
	})
	o.sessions[ns] = s
	o.wg.Add(1)
	go o.receive(s)
}

// reclaim revokes the unused credit of other namespaces.
func (o *Outbound) reclaim(ns string) {
	now, again := time.Now(), false
	for _, s := range o.sessions {
		if s.ns == ns || s.credit == 0 {
			continue
		}
		if now.Sub(s.granted) < outboundRest {
			again = true
			continue
		}
		n := s.worker.TakeCapacity(s.credit)
		s.credit -= n
		o.free += n
	}
	if again && o.free <= 0 && !o.resting {
		o.resting = true
		time.AfterFunc(outboundRest, func() {
			o.mu.Lock()
			o.resting = false
			o.mu.Unlock()
			o.signal()
		})
	}
}

// retire closes sessions without calls for cfg.Idle.
func (o *Outbound) retire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for ns, s := range o.sessions {
		if s.under == 0 && now.Sub(s.granted) >= o.cfg.Idle && now.Sub(s.used) >= o.cfg.Idle {
			o.closeSession(ns, s)
		}
	}
}

// closeSession ends a session. Its tasks that were not begun become pending again.
func (o *Outbound) closeSession(ns string, s *outboundSession) {
	delete(o.sessions, ns)
	o.free += s.credit
	s.credit = 0
	s.worker.Detach()
}

// receive begins a call for each task that a session gets, until the session ends.
func (o *Outbound) receive(s *outboundSession) {
	defer o.wg.Done()
	for {
		d, ok := s.worker.Next(o.sends)
		switch {
		case !ok:
			return
		case d.Cancelling:
			o.end(d.Token, errCallCancelled)
		default:
			o.begin(s, d)
		}
	}
}

// begin begins a call.
func (o *Outbound) begin(s *outboundSession, d workers.Delivery) {
	c := &outboundCall{o: o, session: s, task: d.Task, key: callKey(d.Task.Token), confirmed: d.Reserved}
	c.ctx, c.cancel = context.WithCancelCause(o.sends)
	o.mu.Lock()
	defer o.mu.Unlock()
	if former := o.calls[c.key]; former != nil {
		former.cancel(errCallLost) // there is a later sends of its task
	}
	if s.credit > 0 {
		s.credit--
	} else {
		o.free--
	}
	if o.over {
		c.cancel(errCallStopped)
	}
	o.calls[c.key] = c
	s.under++
	o.under.begin()
	o.wg.Add(1)
	go func() {
		defer o.wg.Done()
		defer c.cancel(nil)
		defer o.ended(c)
		c.run()
	}()
}

// ended returns the credit of a call.
func (o *Outbound) ended(c *outboundCall) {
	c.session.worker.Finished(c.task.Token)
	o.mu.Lock()
	if o.calls[c.key] == c {
		delete(o.calls, c.key)
	}
	o.free++
	c.session.under--
	c.session.used = time.Now()
	o.mu.Unlock()
	o.under.end()
	o.signal()
}

// end ends the call of a task, if there is one.
func (o *Outbound) end(t *perdurev1.TaskToken, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.calls[callKey(t)]; c != nil && c.is(t) {
		c.cancel(why)
	}
}

// Why a call is ended from outside.
var (
	errCallCancelled = errors.New("the attempt was asked to cancel")
	errCallLost      = errors.New("the task is no longer this node's")
	errCallStopped   = errors.New("the node is stopping")
)

// outboundStopTimeout bounds the wait for calls in progress when the node stops.
const outboundStopTimeout = time.Second

// Close takes no further tasks, waits a second at most for calls in progress, and releases the tasks of the others. It
// blocks until all goroutines have ended; when ctx ends first, leases end what is left. Further calls do nothing.
func (o *Outbound) Close(ctx context.Context) {
	o.closeOnce.Do(func() { o.close(ctx) })
}

func (o *Outbound) close(ctx context.Context) {
	o.dispatcher.OnStarved(nil)
	close(o.stopping)
	o.mu.Lock()
	o.over = true
	for ns, s := range o.sessions {
		o.closeSession(ns, s)
	}
	o.mu.Unlock()
	timeout := outboundStopTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/4)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-o.under.ended():
	case <-timer.C:
	case <-ctx.Done():
	}
	o.mu.Lock()
	for _, c := range o.calls {
		c.cancel(errCallStopped)
	}
	o.mu.Unlock()
	select {
	case <-o.under.ended():
	case <-ctx.Done():
	}
	o.endSends()
	o.wg.Wait()
	o.client.CloseIdleConnections()
}
