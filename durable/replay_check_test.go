package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// checkReplay checks one function against one journal.
func checkReplay(t *testing.T, entries []*perdurev1.JournalEntry, f Registration) ReplayVerdict {
	t.Helper()
	line, err := protojson.Marshal(&perdurev1.Task{Token: &perdurev1.TaskToken{Namespace: "default", Id: "x", Incarnation: 1},
		Function: "f", Entries: entries, NextSeq: uint64(len(entries))})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{Addrs: []string{"127.0.0.1:1"}}) // a check needs no cluster
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := NewWorker(c, WorkerOptions{})
	w.Register(f)
	var out bytes.Buffer
	if err := w.CheckReplay(context.Background(), bytes.NewReader(append(line, '\n')), &out); err != nil {
		t.Fatal(err)
	}
	var v ReplayVerdict
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	return v
}

// A check says of every pair of operations whether the code fits the journal, and names the difference,
// without running a step. The journal may end anywhere.
func TestReplayCheck(t *testing.T) {
	type none struct{}
	follow := func(body func(Context) error, end error) *Function[none, string] {
		return NewFunction("f", func(ctx Context, _ none) (string, error) {
			if err := body(ctx); err != nil {
				return "", err
			}
			if _, err := Run(ctx, "last", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
			return "done", end
		})
	}
	for recorded, body := range ops {
		f := everythingServer(t)
		f.children["other"] = f.children["echo"]
		f.worker(WorkerOptions{}, follow(body, nil))
		f.start("x", "f", "")
		f.finished("x")
		full := f.journalOf("x")
		for n := 1; n <= len(full); n++ {
			if v := checkReplay(t, full[:n], follow(body, nil)); !v.Fits || v.Events != n {
				t.Errorf("%s: the first %d entries: %+v", recorded, n, v)
			}
		}
		for asked, other := range ops {
			v := checkReplay(t, full, follow(other, nil))
			if asked == recorded {
				if !v.Fits || v.Operations != 2 {
					t.Errorf("%s: %+v", recorded, v)
				}
				continue
			}
			if v.Fits || v.At != "x:0" || v.Event != 1 || v.Journal != recorded || v.Code != "the code asks for "+asked {
				t.Errorf("%s against %s: %+v", recorded, asked, v)
			}
		}
		if v := checkReplay(t, full, follow(body, errors.New("no"))); v.Fits || v.At != "x" || v.Journal != "completed" {
			t.Errorf("%s, then an error: %+v", recorded, v)
		}
		if v := checkReplay(t, full, follow(func(Context) error { return errors.New("no") }, nil)); v.Fits || v.Code != "the code returns before it" {
			t.Errorf("%s against an early end: %+v", recorded, v)
		}
		longer := NewFunction("f", func(ctx Context, in none) (string, error) {
			if _, err := follow(body, nil).fn(ctx, in); err != nil {
				return "", err
			}
			return Run(ctx, "more", func(context.Context) (string, error) { return "done", nil })
		})
		if v := checkReplay(t, full, longer); v.Fits || v.At != "x:2" || v.Journal != "no operation, the execution has ended" {
			t.Errorf("%s and a step more: %+v", recorded, v)
		}
		twice := func(ctx Context) error { return errors.Join(body(ctx), body(ctx)) }
		if v := checkReplay(t, full, follow(twice, nil)); v.Fits || v.At != "x:1" {
			t.Errorf("%s twice: %+v", recorded, v)
		}
	}
}

// A check runs no step: not one that the journal has begun, and not the next one. Code that cannot be
// replayed is told apart.
func TestReplayCheckRunsNothing(t *testing.T) {
	ran := false
	step := func(ctx Context) error {
		_, err := Run(ctx, "a", func(ctx context.Context) (int, error) {
			ran = true
			if StepInfo(ctx).Attempt == 1 {
				return 0, errors.New("not yet")
			}
			return 1, nil
		}, WithRetry(RetryPolicy{MaxAttempts: 3, Initial: 1}))
		return err
	}
	function := func(body func(Context) error) Registration {
		return NewFunction("f", func(ctx Context, _ int) (int, error) { return 0, body(ctx) })
	}
	f := newFake(t)
	f.worker(WorkerOptions{}, function(step))
	f.start("x", "f", "1")
	f.finished("x")
	full := f.journalOf("x")
	ran = false
	for n := 1; n < len(full); n++ {
		if v := checkReplay(t, full[:n], function(step)); !v.Fits || ran {
			t.Errorf("%d entries: %+v, the step ran: %t", n, v, ran)
		}
		background := func(ctx Context) error {
			s, err := GoStep(ctx, "a", func(context.Context) (int, error) { ran = true; return 1, nil })
			if err == nil {
				_, err = s.Get(ctx)
			}
			return err
		}
		if v := checkReplay(t, full[:n], function(background)); !v.Fits || ran {
			t.Errorf("%d entries, a concurrent step: %+v, the step ran: %t", n, v, ran)
		}
	}
	if v := checkReplay(t, full, function(func(Context) error { panic("no") })); v.Fits || !strings.Contains(v.Problem, "panic: no") {
		t.Errorf("a panic: %+v", v)
	}
	if v := checkReplay(t, full, NewFunction("g", func(Context, int) (int, error) { return 0, nil })); v.Fits || v.Problem == "" {
		t.Errorf("another function: %+v", v)
	}
}
