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
)

// functionOfHTTP is whose executions are the attempts of graphs' HTTP nodes.
const functionOfHTTP = "$http"

// Bounds of an Outbound.
const (
	// outboundCalls is how many calls may be under way at once, over all namespaces.
	outboundCalls = 64
	// outboundIdle is how long a namespace without calls keeps its seat.
	outboundIdle = time.Minute
	// outboundRest is how long room stays where it was given before another namespace may take it.
	outboundRest = 50 * time.Millisecond
)

// OutboundConfig is what an Outbound needs to know.
type OutboundConfig struct {
	NodeID string
	// Lease is how long tasks stay the node's own without a heartbeat.
	Lease time.Duration
	// Version is told to the services, in User-Agent.
	Version string
	Logger  *slog.Logger
	// Policy says what may be called; its zero value refuses every call, which fails the node that asks for it.
	Policy OutboundPolicy
	// Idle is how long a namespace without calls keeps its seat; 0 means a minute.
	Idle time.Duration
}

// Outbound carries out the HTTP nodes of graphs: it is the worker of the function $http, a part of the node, for
// the partitions that the node leads, in every namespace that has such nodes. One task is one call; whether there
// is another after it fails is the graph's business. At most 64 calls are under way.
//
// An answer with a status of 2xx completes the attempt, with the body as its result: JSON as it is, other text
// as a JSON string, other bytes as one in base64, nothing as null; 4 MiB at most. Everything else fails it, with a
// type that begins with "http_": the status ("http_503"), or "timeout", "connect", "tls", "redirects", "too_large",
// "broken", "request", "forbidden".
//
// What a crash loses is the calls under way: their tasks go to whoever leads when the leases are over, which
// repeats them with the same idempotency key.
//
// Graphs say which addresses are called, and the calls come from this machine, so a policy says which are allowed. It
// is asked before a request is sent, at each redirect, and for each address that is connected to.
type Outbound struct {
	cfg        OutboundConfig
	log        *slog.Logger
	router     *partition.Router
	dispatcher *partition.Dispatcher
	client     *http.Client
	agent      string
	// id begins the names of the seats' workers.
	id string
	// life ends when nothing can be said to the partitions any more.
	life    context.Context
	endLife context.CancelFunc

	// mu is taken before the dispatcher's own lock, starved's after it.
	mu    sync.Mutex
	free  int // room that no seat has; below zero for a while when tasks came for which there was none
	seats map[string]*outboundSeat
	calls map[string]*outboundCall
	over  bool
	// resting: a timer will look for room again.
	resting bool

	starvedMu sync.Mutex
	starved   []string // namespaces whose tasks wait for room, each once

	wake     chan struct{}
	stopping chan struct{}
	under    inflight // calls
	wg       sync.WaitGroup

	closeOnce sync.Once
}

// outboundSeat is the node's place among the workers of one namespace.
type outboundSeat struct {
	ns     string
	worker *partition.Worker
	// lent is the room that it has; fed is when it got some, used when its last call ended.
	lent      int
	under     int
	fed, used time.Time
}

// ServeOutbound begins to carry out HTTP nodes. It must be closed, before the partitions are.
func ServeOutbound(cfg OutboundConfig, router *partition.Router, dispatcher *partition.Dispatcher) (*Outbound, error) {
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
		seats: map[string]*outboundSeat{}, calls: map[string]*outboundCall{}, wake: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
	o.life, o.endLife = context.WithCancel(context.Background())
	o.wg.Add(2)
	go o.feeding()
	go o.beating()
	dispatcher.OnStarved(o.onStarved)
	return o, nil
}

// onStarved notes that tasks of a namespace wait and nobody has room for them. It is called by the dispatcher, and
// must not block.
func (o *Outbound) onStarved(ns, function string) {
	if function != functionOfHTTP {
		return
	}
	o.starvedMu.Lock()
	if !slices.Contains(o.starved, ns) {
		o.starved = append(o.starved, ns)
	}
	o.starvedMu.Unlock()
	o.poke()
}

func (o *Outbound) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// feeding gives room to namespaces that wait for some, and takes seats away that nobody uses.
func (o *Outbound) feeding() {
	defer o.wg.Done()
	idle := time.NewTicker(max(o.cfg.Idle/4, time.Millisecond))
	defer idle.Stop()
	for {
		select {
		case <-o.wake:
			o.feed()
		case <-idle.C:
			o.retire()
		case <-o.stopping:
			return
		}
	}
}

// feed gives each namespace that waits its share of the room there is, in the order in which they began to wait.
// One share stays for whoever comes next.
func (o *Outbound) feed() {
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
			return // the end of a call goes on here
		}
		o.starvedMu.Lock()
		o.starved = o.starved[1:]
		o.starvedMu.Unlock()
		o.give(ns, (o.free+len(waiting))/(len(waiting)+1))
	}
}

// give gives a namespace room.
func (o *Outbound) give(ns string, n int) {
	o.free -= n
	now := time.Now()
	if s := o.seats[ns]; s != nil {
		s.lent += n
		s.fed = now
		s.worker.AddRoom(n)
		return
	}
	s := &outboundSeat{ns: ns, lent: n, fed: now, used: now}
	s.worker = o.dispatcher.AttachHere(partition.WorkerSpec{
		ID: o.id + "/" + ns, Namespace: ns, Functions: []string{functionOfHTTP}, LeaseMS: o.cfg.Lease.Milliseconds(), Room: n,
	})
	o.seats[ns] = s
	o.wg.Add(1)
	go o.receive(s)
}

// reclaim takes room from namespaces that do not use theirs.
func (o *Outbound) reclaim(ns string) {
	now, again := time.Now(), false
	for _, s := range o.seats {
		if s.ns == ns || s.lent == 0 {
			continue
		}
		if now.Sub(s.fed) < outboundRest {
			again = true
			continue
		}
		n := s.worker.TakeRoom(s.lent)
		s.lent -= n
		o.free += n
	}
	if again && o.free <= 0 && !o.resting {
		o.resting = true
		time.AfterFunc(outboundRest, func() {
			o.mu.Lock()
			o.resting = false
			o.mu.Unlock()
			o.poke()
		})
	}
}

// retire takes seats away that have not been used for a while.
func (o *Outbound) retire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for ns, s := range o.seats {
		if s.under == 0 && now.Sub(s.fed) >= o.cfg.Idle && now.Sub(s.used) >= o.cfg.Idle {
			o.dismiss(ns, s)
		}
	}
}

// dismiss ends a seat. Its tasks that were not begun go back.
func (o *Outbound) dismiss(ns string, s *outboundSeat) {
	delete(o.seats, ns)
	o.free += s.lent
	s.lent = 0
	s.worker.Detach()
}

// receive begins a call for each task that a seat gets.
func (o *Outbound) receive(s *outboundSeat) {
	defer o.wg.Done()
	for {
		d, ok := s.worker.Next(o.life)
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
func (o *Outbound) begin(s *outboundSeat, d partition.Delivery) {
	c := &outboundCall{o: o, seat: s, task: d.Task, key: callKey(d.Task.Token), confirmed: d.Reserved}
	c.ctx, c.cancel = context.WithCancelCause(o.life)
	o.mu.Lock()
	defer o.mu.Unlock()
	if former := o.calls[c.key]; former != nil {
		former.cancel(errCallLost) // there is a later life of its task
	}
	if s.lent > 0 {
		s.lent--
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

// ended gives the room of a call back.
func (o *Outbound) ended(c *outboundCall) {
	c.seat.worker.Finished(c.task.Token)
	o.mu.Lock()
	if o.calls[c.key] == c {
		delete(o.calls, c.key)
	}
	o.free++
	c.seat.under--
	c.seat.used = time.Now()
	o.mu.Unlock()
	o.under.end()
	o.poke()
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
	errCallLost      = errors.New("the task is another's, or over")
	errCallStopped   = errors.New("the node is stopping")
)

// outboundPatience is how long calls under way may go on when the node stops.
const outboundPatience = time.Second

// Close takes no further tasks, lets calls under way end for a second at most, and gives back the tasks of those
// that do not. It returns when all is said, or ctx ends: then leases end what is left. Further calls do nothing.
func (o *Outbound) Close(ctx context.Context) {
	o.closeOnce.Do(func() { o.close(ctx) })
}

func (o *Outbound) close(ctx context.Context) {
	o.dispatcher.OnStarved(nil)
	close(o.stopping)
	o.mu.Lock()
	o.over = true
	for ns, s := range o.seats {
		o.dismiss(ns, s)
	}
	o.mu.Unlock()
	patience := outboundPatience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/4)
	}
	timer := time.NewTimer(patience)
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
	o.endLife()
	o.wg.Wait()
	o.client.CloseIdleConnections()
}
