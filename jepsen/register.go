package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// RegisterOptions describe the use of registers. The zero value is good.
type RegisterOptions struct {
	// Clients work concurrently; default 9. A third of them know all nodes, the others one node each, so that
	// a node that lags is asked too.
	Clients int
	// Live is how many promises are in use at a time, default 6; each for about OpsPerID operations,
	// default 18. Then another takes its place.
	Live, OpsPerID int
	// Deadlines is how many more promises are in use that time out within 1.6 s unless a client settles them
	// before; every second operation is on one of these. Default 40; negative for none.
	Deadlines int
	// Timeout is the timeout of one operation; default 4 s. An operation without an answer by then stays
	// open. Every second one of the clients that know one node has a quarter of it, so that faults leave
	// operations open.
	Timeout time.Duration
	// Pause is a client's wait after an operation; default 2 ms.
	Pause time.Duration
	// Prefix begins every id; ids of two runs on one cluster must differ.
	Prefix string
	Seed   uint64
}

func (o *RegisterOptions) fill() {
	o.Clients = fallback(o.Clients, 9)
	o.Live = fallback(o.Live, 6)
	o.OpsPerID = fallback(o.OpsPerID, 18)
	o.Deadlines = max(fallback(o.Deadlines, 40), 0)
	o.Timeout = fallback(o.Timeout, 4*time.Second)
	o.Pause = fallback(o.Pause, 2*time.Millisecond)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("reg-%x", o.Seed))
}

// fallback is v, or def when v is zero.
func fallback[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// RegisterRun is the workload in which several clients create, settle and read the same promises.
type RegisterRun struct {
	o     RegisterOptions
	began time.Time
	stop  context.CancelFunc
	wait  sync.WaitGroup

	mu       sync.Mutex
	history  []RegisterOp
	refusals []string
	dropped  int
	// live are the promises in use: first those without deadlines, then those with deadlines.
	live []register
	made int
}

// register is one promise in use.
type register struct {
	id       string
	deadline time.Duration
	used     int
}

// StartRegisters starts the workload. Stop ends it.
func StartRegisters(ctx context.Context, c *Cluster, o RegisterOptions) (*RegisterRun, error) {
	o.fill()
	ctx, cancel := context.WithCancel(ctx)
	r := &RegisterRun{o: o, began: time.Now(), stop: cancel}
	for i := range o.Live + o.Deadlines {
		r.live = append(r.live, r.fresh(i))
	}
	for i := range o.Clients {
		var only []*Node
		if i%3 != 0 {
			only = []*Node{c.nodes[i%len(c.nodes)]}
		}
		timeout := o.Timeout
		if i%3 != 0 && i%2 == 0 {
			timeout /= 4
		}
		cl, err := c.Client(timeout, only...)
		if err != nil {
			cancel()
			r.wait.Wait()
			return nil, err
		}
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		r.wait.Go(func() {
			defer cl.Close()
			for ctx.Err() == nil {
				r.one(ctx, cl, i, timeout, rng)
				select {
				case <-time.After(o.Pause):
				case <-ctx.Done():
				}
			}
		})
	}
	return r, nil
}

// fresh is the next unused promise for an index in live. The caller holds the lock, or no other goroutine
// runs yet.
func (r *RegisterRun) fresh(place int) register {
	r.made++
	next := register{id: fmt.Sprintf("%s-%d", r.o.Prefix, r.made)}
	if place >= r.o.Live {
		next.deadline = time.Duration(100+r.made*37%1500) * time.Millisecond
	}
	return next
}

// pick chooses a promise in use.
func (r *RegisterRun) pick(rng *rand.Rand) register {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := rng.IntN(r.o.Live)
	if r.o.Deadlines > 0 && rng.IntN(2) == 0 {
		i = r.o.Live + rng.IntN(r.o.Deadlines)
	}
	if r.live[i].used >= r.o.OpsPerID {
		r.live[i] = r.fresh(i)
	}
	r.live[i].used++
	return r.live[i]
}

// promiseTimeout is the timeout of promises without a deadline, beyond every run.
const promiseTimeout = 24 * time.Hour

// one makes one operation and records it.
func (r *RegisterRun) one(ctx context.Context, cl *client.Client, who int, timeout time.Duration, rng *rand.Rand) {
	on := r.pick(rng)
	op := RegisterOp{Client: who, ID: on.id, Deadline: on.deadline, Kind: RegisterGet}
	value := fmt.Sprintf("%d.%d", who, rng.Uint32())
	rejected := rng.IntN(4) == 0
	switch n := rng.IntN(10); {
	case n < 3:
		op.Kind, op.Value = RegisterCreate, value
	case n < 5:
		op.Kind, op.Value = RegisterSettle, "resolved "+value
		if rejected {
			op.Value = "rejected " + value
		}
	}
	var p *perdurev1.Promise
	var err error
	// The run's end does not cut an operation short: only its timeout does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	op.Called = time.Since(r.began)
	switch op.Kind {
	case RegisterCreate:
		p, err = cl.CreatePromise(ctx, op.ID, client.PromiseOptions{Param: []byte(value), Timeout: fallback(on.deadline, promiseTimeout)})
	case RegisterSettle:
		state := perdurev1.PromiseState_PROMISE_STATE_RESOLVED
		outcome := &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(value)}}
		if rejected {
			state = perdurev1.PromiseState_PROMISE_STATE_REJECTED
			outcome = &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Message: value}}}
		}
		p, err = cl.SettlePromise(ctx, op.ID, state, outcome)
	default:
		p, err = cl.GetPromise(ctx, op.ID)
	}
	op.Answered = time.Since(r.began)
	r.note(op, p, err)
}

// note classifies the answer and records the operation.
func (r *RegisterRun) note(op RegisterOp, p *perdurev1.Promise, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		op.Seen = seen(p)
	case api.Is(err, perdurev1.Reason_REASON_PROMISE_NOT_FOUND) && op.Kind != RegisterCreate:
		// This is an answer too: the register is absent.
	case errors.Is(err, client.ErrOutcomeUnknown):
		op.Open = true
	case errors.Is(err, client.ErrUnavailable):
		r.dropped++
		return
	default:
		r.refusals = append(r.refusals, fmt.Sprintf("%v: %v", op, err))
		return
	}
	r.history = append(r.history, op)
}

// seen is a promise as a register.
func seen(p *perdurev1.Promise) RegisterState {
	s := RegisterState{Created: true, Param: string(p.GetParam())}
	switch p.GetState() {
	case perdurev1.PromiseState_PROMISE_STATE_PENDING:
	case perdurev1.PromiseState_PROMISE_STATE_RESOLVED:
		s.Value = "resolved " + string(p.GetValue().GetValue())
	case perdurev1.PromiseState_PROMISE_STATE_REJECTED:
		s.Value = "rejected " + p.GetValue().GetFailure().GetMessage()
	case perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT:
		s.Value = timedOut
	default:
		s.Value = p.GetState().String() // no client asked for that state: no order explains it
	}
	return s
}

// RegisterHistory is the history of a run.
type RegisterHistory struct {
	Ops []RegisterOp
	// Refusals are answers that no correct server gives.
	Refusals []string
	// Dropped counts operations that surely did not take place: reads without an answer, and writes that no
	// node could take.
	Dropped int
	Began   time.Time
}

// Answered is how many operations are in the history so far.
func (r *RegisterRun) Answered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.history)
}

// Stop ends the workload, waits for the operations under way, and returns the history.
func (r *RegisterRun) Stop() RegisterHistory {
	r.stop()
	r.wait.Wait()
	return RegisterHistory{Ops: r.history, Refusals: r.refusals, Dropped: r.dropped, Began: r.began}
}
