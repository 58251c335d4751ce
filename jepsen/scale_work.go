package jepsen

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"time"

	"perdure/durable"
)

// The functions of the scale workload, and the signal that its receiver waits for.
const (
	scaleSignalsName  = "jepsen-scale-signals"
	scaleStepsName    = "jepsen-scale-steps"
	scaleChildrenName = "jepsen-scale-children"
	scaleChildName    = "jepsen-scale-child"
	scaleSleeperName  = "jepsen-scale-sleeper"
	scaleJoinerName   = "jepsen-scale-joiner"
	scaleMemberName   = "jepsen-scale-member"
	scaleSignal       = "scale"
)

// scaleInput is the input of every function of the scale workload.
type scaleInput struct {
	// ID is the execution that notes are written for: the execution itself, for a child its parent.
	ID string `json:"id"`
	// N is how many signals, steps or children; of a child, its number.
	N int `json:"n"`
	// Batch is how many children run at a time.
	Batch int `json:"batch,omitempty"`
	// AtMs is the Unix time at which a sleeper wakes, or the members of a join set end, in milliseconds; 0 for at once.
	AtMs int64 `json:"at,omitempty"`
	// SpreadMs is the time over which the members of a join set end, from AtMs on, in another order than they began.
	SpreadMs int64 `json:"spread,omitempty"`
}

// scaleDigest is the result of a function that has collected these words, in this order.
func scaleDigest(words []string) string {
	h := sha256.New()
	for _, w := range words {
		addWord(h, w)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func addWord(digest hash.Hash, word string) { fmt.Fprintf(digest, "%d:%s\n", len(word), word) }

// scaleChildResult is what the n-th child of an execution returns.
func scaleChildResult(parent string, n int) string {
	return fmt.Sprintf("%s is done with %d", parent, n)
}

// scaleFunctions are the functions of the scale workload. A nil note is for a caller that only starts them.
type scaleFunctions struct {
	signals, steps, children, child, sleeper, joiner, member *durable.Function[scaleInput, string]
}

func newScaleFunctions(note notes) scaleFunctions {
	var f scaleFunctions
	f.signals = durable.NewFunction(scaleSignalsName, func(ctx durable.Context, in scaleInput) (string, error) {
		var words []string
		for range in.N {
			word, err := durable.WaitSignal[string](ctx, scaleSignal)
			if err != nil {
				return "", err
			}
			words = append(words, word)
		}
		return scaleDigest(words), nil
	})
	f.steps = durable.NewFunction(scaleStepsName, func(ctx durable.Context, in scaleInput) (string, error) {
		digest := sha256.New() // it keeps no proof, so that what grows is the worker's
		all := &steps{note: note, id: in.ID}
		for range in.N {
			proof, err := all.run(ctx, "step", 0)
			if err != nil {
				return "", err
			}
			addWord(digest, proof)
		}
		return hex.EncodeToString(digest.Sum(nil)), nil
	})
	f.child = durable.NewFunction(scaleChildName, func(_ durable.Context, in scaleInput) (string, error) {
		return scaleChildResult(in.ID, in.N), nil
	})
	f.children = durable.NewFunction(scaleChildrenName, func(ctx durable.Context, in scaleInput) (string, error) {
		var results []string
		for n := 0; n < in.N; {
			var futures []*durable.Future[string]
			for ; n < in.N && len(futures) < in.Batch; n++ {
				future, err := durable.Go(ctx, f.child, scaleInput{ID: in.ID, N: n})
				if err != nil {
					return "", err
				}
				futures = append(futures, future)
			}
			if err := durable.AwaitAll(ctx, durable.Awaitables(futures)...); err != nil {
				return "", err
			}
			for _, future := range futures {
				result, err := future.Get(ctx)
				if err != nil {
					return "", err
				}
				results = append(results, result)
			}
		}
		return scaleDigest(results), nil
	})
	f.sleeper = durable.NewFunction(scaleSleeperName, func(ctx durable.Context, in scaleInput) (string, error) {
		left, err := durable.Run(ctx, "left", func(context.Context) (time.Duration, error) {
			return max(time.Millisecond, time.Until(time.UnixMilli(in.AtMs))), nil
		})
		if err != nil {
			return "", err
		}
		return in.ID, durable.Sleep(ctx, left)
	})
	f.joiner, f.member = joinFunctions()
	return f
}

// register adds all of them to a worker.
func (f scaleFunctions) register(w *durable.Worker) {
	for _, fn := range []*durable.Function[scaleInput, string]{f.signals, f.steps, f.children, f.child, f.sleeper, f.joiner, f.member} {
		w.Register(fn)
	}
}
