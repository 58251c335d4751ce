package jepsen

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ResonateOptions describe the clients of the Resonate protocol. The zero value is good.
type ResonateOptions struct {
	// Clients work concurrently; default 9. A third of them use all nodes, the others one node each.
	Clients int
	// Live is how many origins are in use at a time, default 8; each for about OpsPerOrigin requests, default 40. Then
	// another takes its place.
	Live, OpsPerOrigin int
	// Concurrent bounds the requests under way about one origin, default 4, and MaxOpen those without an answer, default
	// 4: the checker tries all orders of them.
	Concurrent, MaxOpen int
	// Timeout is the timeout of one request; default 3 s. Every second client that uses one node has a quarter of it, so
	// that faults leave requests open.
	Timeout time.Duration
	// Pause is a client's wait after a request; default 5 ms.
	Pause time.Duration
	// Prefix begins every id; ids of two runs on one cluster must differ.
	Prefix string
	Seed   uint64
}

func (o *ResonateOptions) fill() {
	o.Clients = fallback(o.Clients, 9)
	o.Live = fallback(o.Live, 8)
	o.OpsPerOrigin = fallback(o.OpsPerOrigin, 40)
	o.Concurrent = fallback(o.Concurrent, 4)
	o.MaxOpen = fallback(o.MaxOpen, 4)
	o.Timeout = fallback(o.Timeout, 3*time.Second)
	o.Pause = fallback(o.Pause, 5*time.Millisecond)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("res-%x", o.Seed))
}

// ResonateRun is the workload in which several clients of the Resonate protocol use the same promises and tasks.
type ResonateRun struct {
	o     ResonateOptions
	began time.Time
	// timeoutAt is the deadline of all promises, beyond every run, in Unix milliseconds.
	timeoutAt int64
	stop      context.CancelFunc
	wait      sync.WaitGroup

	mu sync.Mutex
	// live are the origins in use, all has those that were in use, too.
	live, all []*resonateOrigin
	answers   int
	dropped   int
	refusals  []string
	outcomes  map[string]int
}

// resonateOrigin is an origin in use: the ids of a few promises, and what the clients know of them.
type resonateOrigin struct {
	ids []string
	// used, underWay and open count requests: begun, without an answer yet, and without one for good.
	used, underWay, open int
	// tasks are the records that the latest answers showed, promises which ids were seen: clients choose by them.
	tasks    map[string]ResonateTask
	promises map[string]bool
	history  []ResonateOp
}

// StartResonate starts the workload. Stop ends it.
func StartResonate(ctx context.Context, c *Cluster, o ResonateOptions) *ResonateRun {
	o.fill()
	ctx, cancel := context.WithCancel(ctx)
	r := &ResonateRun{o: o, began: time.Now(), stop: cancel, outcomes: map[string]int{}}
	r.timeoutAt = r.began.Add(promiseTimeout).UnixMilli()
	for range o.Live {
		r.live = append(r.live, r.fresh())
	}
	for i := range o.Clients {
		cl := &resonateClient{run: r, number: i, nodes: c.nodes, timeout: o.Timeout, rng: rand.New(rand.NewPCG(o.Seed, uint64(i)))}
		if i%3 != 0 {
			cl.nodes = []*Node{c.nodes[i%len(c.nodes)]}
			if i%2 == 0 {
				cl.timeout /= 4
			}
		}
		r.wait.Go(func() { cl.work(ctx) })
	}
	return r
}

// fresh is the next unused origin. The caller holds the lock, or no other goroutine runs yet.
func (r *ResonateRun) fresh() *resonateOrigin {
	root := fmt.Sprintf("%s-%d", r.o.Prefix, len(r.all)+1)
	o := &resonateOrigin{ids: []string{root, root + ":0", root + ":1", root + ":2"}, tasks: map[string]ResonateTask{}, promises: map[string]bool{}}
	r.all = append(r.all, o)
	return o
}

// begin chooses an origin and a request about it; nil if as many requests as may be are under way about the chosen one.
func (r *ResonateRun) begin(cl *resonateClient) (*resonateOrigin, ResonateRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := cl.rng.IntN(len(r.live))
	if o := r.live[i]; o.used >= r.o.OpsPerOrigin || o.open >= r.o.MaxOpen {
		r.live[i] = r.fresh()
	}
	o := r.live[i]
	if o.underWay >= r.o.Concurrent {
		return nil, ResonateRequest{}
	}
	o.used++
	o.underWay++
	return o, cl.draw(o)
}

// note records what became of a request.
func (r *ResonateRun) note(o *resonateOrigin, op ResonateOp, fate WriteFate, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.underWay--
	switch {
	case fate == Acked && err != nil:
		r.refusals = append(r.refusals, fmt.Sprintf("%v: %v", op, err))
		return
	case fate == NotDone || fate == Open && op.reads():
		r.dropped++
		return
	case fate == Open:
		op.Open, op.Answer = true, ResonateAnswer{}
		o.open++
		r.outcomes[op.Kind+" open"]++
	default:
		r.answers++
		r.outcomes[op.Kind+" "+strconv.Itoa(op.Answer.Status)]++
		o.learn(op)
	}
	o.history = append(o.history, op)
}

// learn takes over what an answer shows, in the order in which answers come: it may be outdated.
func (o *resonateOrigin) learn(op ResonateOp) {
	a := op.Answer
	if a.Promise.ID != "" {
		id := a.Promise.ID
		o.promises[id] = true
		switch t, known := o.tasks[id]; {
		case known && a.Promise.State != "pending":
			o.tasks[id] = ResonateTask{ID: id, State: "fulfilled", Version: t.Version}
		case !known && a.Promise.State == "pending" && strings.Contains(a.Promise.Tags, resonateTarget):
			o.tasks[id] = ResonateTask{ID: id, State: "pending"}
		}
	}
	if a.Task.ID != "" {
		o.tasks[a.Task.ID] = a.Task
		return
	}
	if a.Status != http.StatusOK {
		return
	}
	next := map[string]string{taskRelease: "pending", taskSuspend: "suspended", taskHalt: "halted", taskContinue: "pending"}[op.Kind]
	if t := o.tasks[op.ID]; next != "" {
		o.tasks[op.ID] = ResonateTask{ID: op.ID, State: next, Version: t.Version}
	}
}

// ResonateHistory is what a run recorded: a history for each origin.
type ResonateHistory struct {
	Origins [][]ResonateOp
	// Refusals are answers that no correct server gives.
	Refusals []string
	// Dropped counts requests that say nothing: reads without an answer, and requests that were not sent.
	Dropped int
	// Outcomes counts requests by kind and status.
	Outcomes map[string]int
}

// Answered is how many requests have an answer so far.
func (r *ResonateRun) Answered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers
}

// Stop ends the workload, waits for the requests under way, and returns the histories.
func (r *ResonateRun) Stop() ResonateHistory {
	r.stop()
	r.wait.Wait()
	h := ResonateHistory{Refusals: r.refusals, Dropped: r.dropped, Outcomes: r.outcomes}
	for _, o := range r.all {
		if len(o.history) > 0 {
			h.Origins = append(h.Origins, o.history)
		}
	}
	return h
}

// resonateClient is a client, one request at a time.
type resonateClient struct {
	run     *ResonateRun
	number  int
	nodes   []*Node
	timeout time.Duration
	rng     *rand.Rand
	sent    int
}

// work sends requests until ctx ends.
func (cl *resonateClient) work(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	for ctx.Err() == nil {
		wait := cl.run.o.Pause
		if !cl.one(ctx, hc) {
			wait *= 4 // a node that is down refuses at once
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// one makes one request and records it. It returns false if the request was not sent.
func (cl *resonateClient) one(ctx context.Context, hc *http.Client) bool {
	r := cl.run
	o, req := r.begin(cl)
	if o == nil {
		return false
	}
	node := cl.nodes[cl.rng.IntN(len(cl.nodes))]
	cl.sent++
	// The run's end does not cut a request short: only its timeout does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cl.timeout)
	defer cancel()
	op := ResonateOp{Client: cl.number, Node: node.Name, ResonateRequest: req, Called: time.Since(r.began)}
	answer, fate, err := req.send(ctx, hc, "http://"+node.HTTPAddr+"/", fmt.Sprintf("%d.%d", cl.number, cl.sent))
	op.Answered, op.Answer = time.Since(r.began), answer
	r.note(o, op, fate, err)
	return fate != NotDone
}

// draw makes a request that what is known of the origin makes likely to succeed, or to compete with another one.
func (cl *resonateClient) draw(o *resonateOrigin) ResonateRequest {
	id := o.ids[cl.rng.IntN(len(o.ids))]
	t, isTask := o.tasks[id]
	if !o.promises[id] && cl.rng.IntN(4) > 0 {
		return cl.creation(id)
	}
	switch n := cl.rng.IntN(20); {
	case n < 2:
		return cl.creation(id)
	case n < 4:
		return ResonateRequest{Kind: promiseGet, ID: id}
	case n < 5:
		return ResonateRequest{Kind: taskGet, ID: id}
	case n < 6:
		return ResonateRequest{Kind: registerCallback, ID: id, Awaiter: cl.other(o, id)}
	case n < 8 && id != o.ids[0]: // a root that ends early leaves the others little to do
		return ResonateRequest{Kind: promiseSettle, ID: id, Settle: cl.settlement(id)}
	case n < 9 && isTask && cl.rng.IntN(3) == 0:
		return ResonateRequest{Kind: taskHalt, ID: id}
	}
	for range 2 * len(o.ids) {
		if isTask && t.State != "fulfilled" {
			break
		}
		id = cl.other(o, id)
		t, isTask = o.tasks[id]
	}
	return cl.drawTask(o, id, t)
}

// drawTask makes a request about a task that was seen in some state; the zero value if none was.
func (cl *resonateClient) drawTask(o *resonateOrigin, id string, t ResonateTask) ResonateRequest {
	acquire := func() ResonateRequest {
		return ResonateRequest{Kind: taskAcquire, ID: id, Version: cl.version(t), PID: cl.pid(), TTL: cl.ttl()}
	}
	switch {
	case t.State == "pending" && cl.rng.IntN(5) > 0:
		return acquire()
	case t.State == "halted" && cl.rng.IntN(2) == 0:
		return ResonateRequest{Kind: taskContinue, ID: id}
	case t.State == "suspended" && cl.rng.IntN(2) == 0:
		awaited := cl.other(o, id)
		return ResonateRequest{Kind: promiseSettle, ID: awaited, Settle: cl.settlement(awaited)}
	}
	switch n := cl.rng.IntN(20); {
	case n < 4:
		return acquire()
	case n < 7:
		return ResonateRequest{Kind: taskRelease, ID: id, Version: cl.version(t)}
	case n < 12:
		awaited := []string{cl.other(o, id)}
		if cl.rng.IntN(2) == 0 {
			awaited = append(awaited, cl.other(o, id))
		}
		return ResonateRequest{Kind: taskSuspend, ID: id, Version: cl.version(t), Awaited: awaited}
	case n < 13:
		return ResonateRequest{Kind: taskFulfill, ID: id, Version: cl.version(t), Settle: cl.settlement(id)}
	case n < 17:
		req := ResonateRequest{Kind: taskFence, ID: id, Version: cl.version(t)}
		if inner := cl.other(o, id); cl.rng.IntN(3) > 0 {
			req.Create = cl.promise(inner)
		} else {
			req.Settle = cl.settlement(inner)
		}
		return req
	}
	beat := ResonateRequest{Kind: taskHeartbeat, PID: fallback(t.PID, cl.pid())}
	for _, held := range o.ids {
		if held == id || cl.rng.IntN(2) == 0 {
			beat.Tasks = append(beat.Tasks, ResonateRef{ID: held, Version: cl.version(o.tasks[held])})
		}
	}
	return beat
}

// creation creates a promise, or a promise and its task.
func (cl *resonateClient) creation(id string) ResonateRequest {
	req := ResonateRequest{Kind: promiseCreate, ID: id, Create: cl.promise(id)}
	if req.Create.Tags[resonateTarget] != "" && cl.rng.IntN(2) == 0 {
		req.Kind, req.PID, req.TTL = taskCreate, cl.pid(), cl.ttl()
	}
	return req
}

// promise is a new promise: mostly one with a target, sometimes one that clients settle, or that nobody may await.
func (cl *resonateClient) promise(id string) *ResonateCreate {
	c := &ResonateCreate{ID: id, TimeoutAt: cl.run.timeoutAt + cl.rng.Int64N(1000), Param: cl.value(), Tags: map[string]string{"by": cl.pid()}}
	switch n := cl.rng.IntN(10); {
	case n < 6:
		c.Tags[resonateTarget] = "poll://any@" + cl.run.o.Prefix
	case n < 8:
		c.Tags[resonateExternal] = "true"
	case n < 9:
		c.Tags[resonateTimer] = "true"
	}
	return c
}

func (cl *resonateClient) settlement(id string) *ResonateSettle {
	return &ResonateSettle{ID: id, State: []string{"resolved", "rejected", "rejected_canceled"}[cl.rng.IntN(3)], Value: cl.value()}
}

// value is a value of any form that clients may give; most are unlike every other one.
func (cl *resonateClient) value() ResonateValue {
	text := fmt.Sprintf("%d.%d", cl.number, cl.rng.Uint32())
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	v := ResonateValue{Data: &encoded}
	switch cl.rng.IntN(12) {
	case 0:
		v.Data = nil
	case 1:
		v.Data = new(string)
	case 2:
		v.Data = &text
	}
	if cl.rng.IntN(4) == 0 {
		v.Headers = map[string]string{"from": text}
	}
	return v
}

func (cl *resonateClient) pid() string { return "p" + strconv.Itoa(cl.number) }

// ttl is a lease that outlasts the run, or a short one.
func (cl *resonateClient) ttl() int64 {
	if cl.rng.IntN(3) == 0 {
		return 200 + cl.rng.Int64N(600)
	}
	return 10 * shortLease
}

// version is the one that the task was seen with, now and then the one before or after.
func (cl *resonateClient) version(t ResonateTask) uint64 {
	switch n := cl.rng.IntN(16); {
	case n == 0:
		return t.Version + 1
	case n < 3 && t.Version > 0:
		return t.Version - 1
	}
	return t.Version
}

// other is an id of the origin other than id.
func (cl *resonateClient) other(o *resonateOrigin, id string) string {
	i := slices.Index(o.ids, id)
	return o.ids[(i+1+cl.rng.IntN(len(o.ids)-1))%len(o.ids)]
}
