package durable

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// A promise's token has a secret that every replay gives again. No two promises have the same one.
func TestTokenHasSecret(t *testing.T) {
	var mu sync.Mutex
	var tokens []string
	asks := NewFunction("asks", func(ctx Context, _ string) (string, error) {
		var made [2]string
		for i := range made {
			p, err := NewPromise[string](ctx)
			if err != nil {
				return "", err
			}
			made[i] = p.Token()
		}
		mu.Lock()
		tokens = append(tokens, strings.Join(made[:], " "))
		mu.Unlock()
		if _, err := Run(ctx, "give away", func(context.Context) (bool, error) { return true, nil }, WithIntent()); err != nil {
			return "", err
		}
		word, err := WaitSignal[string](ctx, "word")
		return word, err
	})
	f := newFake(t)
	f.signals["word"] = []string{`"hello"`}
	commits := 0
	f.onCommit = func(*fakeExec, *perdurev1.Commit) (fa fault) {
		if commits++; commits == 1 {
			fa.after, fa.lost = true, true // the worker is lost after the commit with the promises
		}
		return fa
	}
	f.worker(WorkerOptions{}, asks)
	f.start("x", "asks", `""`)
	f.finished("x")
	mu.Lock()
	defer mu.Unlock()
	if len(tokens) < 2 || len(slices.Compact(slices.Clone(tokens))) != 1 {
		t.Fatalf("the activations gave away %q", tokens)
	}
	first, second, _ := strings.Cut(tokens[0], " ")
	promise, incarnation, secret := id.CutToken(first)
	_, _, other := id.CutToken(second)
	if promise != "x:0" || incarnation == 0 || len(secret) != id.PromiseSecretBytes || len(other) != id.PromiseSecretBytes || string(secret) == string(other) {
		t.Errorf("the tokens are %q and %q", first, second)
	}
}

// A promise in the journal of a former version has no secret, and the token that it had then.
func TestTokenOfOldJournal(t *testing.T) {
	f := newFake(t)
	asks := NewFunction("asks", func(ctx Context, _ string) (string, error) {
		p, err := NewPromise[string](ctx)
		return p.Token(), err
	})
	f.restore("x", "asks", []*perdurev1.JournalEntry{
		{Seq: 0, Event: &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{Input: []byte(`""`)}}}},
		{Seq: 1, Event: &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: "x:0", Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "promise", RetryPolicy: "attempts=1"}}}},
	})
	f.worker(WorkerOptions{}, asks)
	got := string(f.finished("x").GetValue())
	if promise, incarnation, secret := id.CutToken(strings.Trim(got, `"`)); promise != "x:0" || incarnation == 0 || secret != nil {
		t.Errorf("the token is %s", got)
	}
}
