package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"perdure/client"
	"perdure/durable"
)

// backupLoad is what a cluster works on while it is backed up: three-step executions, of which every second one sends
// and waits for signals and sleeps, transfers between accounts, and graphs.
type backupLoad struct {
	c        *Cluster
	o        BackupOptions
	prefix   string
	began    time.Time
	boxes    []string
	accounts []durable.EntityID
	made     atomic.Int64

	mu         sync.Mutex
	executions []*BackedExecution
	transfers  []*BackedTransfer
	graphs     []*backedGraph
}

// backedGraph is a run of a graph, and when its submission was acknowledged; -1 for never.
type backedGraph struct {
	GraphRecord
	acked time.Duration
}

func newBackupLoad(ctx context.Context, c *Cluster, o BackupOptions, prefix string) (*backupLoad, error) {
	l := &backupLoad{c: c, o: o, prefix: prefix, began: time.Now()}
	for i := range o.Accounts {
		l.accounts = append(l.accounts, bankAccount.ID(fmt.Sprintf("%s-%d", prefix, i)))
	}
	boxes := &ExecutionRun{c: c, o: ExecutionOptions{Prefix: prefix, Timeout: o.Timeout}}
	if err := boxes.openBoxes(ctx); err != nil {
		return nil, err
	}
	l.boxes = boxes.boxes
	return l, nil
}

// start starts all clients; they run until running ends, and give up then what they wait for.
func (l *backupLoad) start(running context.Context) (wait func(), err error) {
	var clients sync.WaitGroup
	add := func(n int, seed uint64, one func(context.Context, *client.Client, *rand.Rand)) {
		for i := range n {
			cl, problem := l.c.Client(l.o.Timeout)
			if problem != nil {
				err = errors.Join(err, problem)
				return
			}
			clients.Go(func() {
				defer cl.Close()
				rng := rand.New(rand.NewPCG(l.o.Seed, seed+uint64(i)))
				for running.Err() == nil {
					one(running, cl, rng)
				}
			})
		}
	}
	add(l.o.Clients, 100, l.execution)
	add(l.o.Functions, 1000, l.transfer)
	add(l.o.Graphs, 2000, l.graph)
	return clients.Wait, err
}

// now is the time since the load began.
func (l *backupLoad) now() time.Duration { return time.Since(l.began) }

// execution runs one execution. Of those that wait, one in four sleeps for seconds, and another one gets its signal only
// in the restored cluster; no client waits for these.
func (l *backupLoad) execution(ctx context.Context, cl *client.Client, rng *rand.Rand) {
	n := l.made.Add(1)
	id := fmt.Sprintf("%s-%d", l.prefix, n)
	e := &BackedExecution{Execution: Execution{ID: id, Acked: -1, Done: -1, Words: -1}, WordAckedAt: -1}
	in := stepsInput{ID: id, Micros: l.o.StepTime.Microseconds()}
	fn, await, word := stepFunction(nil), true, false
	if waits(id) {
		fn, word = waitingFunction(nil), true
		in.Box, in.Sleep = l.boxes[int(n)%len(l.boxes)], 20+rng.Int64N(400)
		e.Box, e.Word, e.Sent = in.Box, "word-"+id, []int{0, 0}
		switch rng.IntN(4) {
		case 0:
			in.Sleep, await = 1000+rng.Int64N(8000), false
		case 1:
			word, await = false, false
		}
	}
	l.mu.Lock()
	l.executions = append(l.executions, e) // its clients have ended when the others are read
	l.mu.Unlock()
	e.Called = l.now()
	h, err := fn.Start(ctx, cl, id, in)
	if err == nil {
		e.Acked = l.now()
		if word {
			if err = e.sendWord(ctx, cl); e.WordAcked {
				e.WordAckedAt = l.now()
			}
		}
	}
	if err == nil && await {
		if e.Result, err = h.Result(ctx); err == nil {
			e.Done = l.now()
		}
	}
	if err != nil {
		e.Err = err.Error()
	}
}

// transfer makes one transfer.
func (l *backupLoad) transfer(ctx context.Context, cl *client.Client, rng *rand.Rand) {
	from, to := rng.IntN(len(l.accounts)), rng.IntN(len(l.accounts)-1)
	if to >= from {
		to++
	}
	t := &BackedTransfer{ID: fmt.Sprintf("%s-t%d", l.prefix, l.made.Add(1)), Acked: -1, Done: -1}
	l.mu.Lock()
	l.transfers = append(l.transfers, t)
	l.mu.Unlock()
	h, err := bankTransfer.Start(ctx, cl, t.ID, transferInput{ID: t.ID, From: l.accounts[from], To: l.accounts[to], Amount: 1 + rng.IntN(40)})
	if err != nil {
		return
	}
	t.Acked = l.now()
	if t.Moved, err = h.Result(ctx); err == nil {
		t.Done = l.now()
	}
}

// graph runs one graph.
func (l *backupLoad) graph(ctx context.Context, cl *client.Client, rng *rand.Rand) {
	n := l.made.Add(1)
	id := fmt.Sprintf("%s-g%d", l.prefix, n)
	g := &backedGraph{GraphRecord: GraphRecord{ID: id, Script: DrawGraph(l.o.Seed, uint64(n), l.o.MaxNodes, n%4 == 0)}, acked: -1}
	l.mu.Lock()
	l.graphs = append(l.graphs, g)
	l.mu.Unlock()
	if _, err := cl.SubmitGraph(ctx, client.SubmitGraphOptions{ID: id, Graph: g.Script.Graph, Input: []byte("{}")}); err != nil {
		return
	}
	g.acked = l.now()
	for _, name := range g.Script.Signals {
		if pause(ctx, time.Duration(rng.IntN(500))*time.Millisecond) != nil ||
			cl.Signal(ctx, id, name, SignalPayload(name)) != nil {
			return // the restored cluster gets all of them again
		}
	}
	_, _ = cl.Result(ctx, id) // its end is read in the restored cluster
}
