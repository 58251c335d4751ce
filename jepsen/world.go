package jepsen

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"perdure/durable"
)

// stepNames are the steps of the function that the executions run.
var stepNames = []string{"reserve", "charge", "ship"}

// functionName is that function's name.
const functionName = "jepsen-three-steps"

// receipt is what a step returns: proof of the one run that counts.
type receipt struct {
	Promise string `json:"promise"`
	Proof   string `json:"proof"`
}

// world is the outside that steps act upon. It does what it is told as often as it is told, and keeps
// books. It lives in the harness, which no fault hits.
type world struct {
	stepTime time.Duration

	mu    sync.Mutex
	steps map[string]*StepRecord // by promise id
	order []string
}

func newWorld(stepTime time.Duration) *world {
	return &world{stepTime: stepTime, steps: map[string]*StepRecord{}}
}

// function is the durable function whose steps act on this world. Its input is its own id.
func (w *world) function() *durable.Function[string, string] {
	return durable.NewFunction(functionName, func(ctx durable.Context, in string) (string, error) {
		var proofs []string
		for _, name := range stepNames {
			r, err := durable.Run(ctx, name, func(ctx context.Context) (receipt, error) { return w.act(ctx, in) })
			if err != nil {
				return "", err
			}
			w.acked(r)
			proofs = append(proofs, r.Proof)
		}
		return ResultOf(in, proofs), nil
	})
}

// act acts on the world for an execution: the books first, then the time it takes.
func (w *world) act(ctx context.Context, execution string) (receipt, error) {
	promise := durable.StepInfo(ctx).PromiseID
	w.mu.Lock()
	s := w.steps[promise]
	if s == nil {
		s = &StepRecord{Execution: execution, Promise: promise}
		w.steps[promise] = s
		w.order = append(w.order, promise)
	}
	s.Runs++
	if s.Receipt != "" {
		s.RunAfterAck++
	}
	w.mu.Unlock()
	select {
	case <-time.After(w.stepTime):
	case <-ctx.Done():
		return receipt{}, ctx.Err()
	}
	var proof [8]byte
	rand.Read(proof[:])
	return receipt{promise, hex.EncodeToString(proof[:])}, nil
}

// acked notes that Run has returned a receipt: from now on the step must not act again, and Run must
// return the same one at every replay.
func (w *world) acked(r receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.steps[r.Promise]
	if s == nil { // a receipt that nobody gave
		s = &StepRecord{Execution: r.Promise, Promise: r.Promise}
		w.steps[r.Promise] = s
		w.order = append(w.order, r.Promise)
	}
	switch {
	case s.Receipt == "":
		s.Receipt = r.Proof
	case s.Receipt != r.Proof:
		s.Changed = append(s.Changed, r.Proof)
	}
}

// records are all steps, in the order in which they ran first.
func (w *world) records() []StepRecord {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]StepRecord, 0, len(w.order))
	for _, p := range w.order {
		s := *w.steps[p]
		s.Changed = slices.Clone(s.Changed)
		out = append(out, s)
	}
	return out
}
