package jepsen

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"perdure/client"
	"perdure/durable"
)

// workedEnv, in the environment, makes a program that calls BeWorker a worker for the worked journals: it has
// the worker's role, the folder of the gates and the addresses of the nodes, with spaces between.
const workedEnv = "PERDURE_JEPSEN_WORKED"

// The roles of such workers: mailers run send_email alone, the others all else.
const (
	workedMain = "main"
	workedMail = "mail"
)

// gates are a folder in which the driver of the worked journals opens gates. A function that stands before a
// gate goes on when its file is there; so it stops at the same place again when it is replayed.
type gates string

func (g gates) file(execution, gate string) string {
	return filepath.Join(string(g), strings.NewReplacer(":", "_", ".", "_").Replace(execution)+"-"+gate)
}

// open opens a gate with a word for the function.
func (g gates) open(execution, gate, word string) error {
	name := g.file(execution, gate)
	if err := os.WriteFile(name+".new", []byte(word), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// pass waits for a gate to be open and returns its word.
func (g gates) pass(ctx context.Context, execution, gate string) (string, error) {
	for {
		word, err := os.ReadFile(g.file(execution, gate))
		if err == nil {
			return string(word), nil
		}
		if !os.IsNotExist(err) {
			return "", err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// gateFails is the word on which an attempt fails; any other is its result.
const gateFails = "fail"

type workedInput struct {
	ID int `json:"id"`
}

// workedFunctions are the functions of the worked journals by name, and the child that mailers run.
func workedFunctions(g gates) (mains map[string]*durable.Function[string, string], children []*durable.Function[workedInput, string], mail *durable.Function[workedInput, string]) {
	// A child's gate has its incarnation as the name: each attempt of it has a gate of its own.
	child := func(name string) *durable.Function[workedInput, string] {
		return durable.NewFunction(name, func(ctx durable.Context, _ workedInput) (string, error) {
			info := durable.Info(ctx)
			word, err := g.pass(ctx, info.ID, strconv.FormatUint(info.Incarnation, 10))
			if err == nil && word == gateFails {
				return "", &durable.Error{Type: "err", Message: "the first attempt fails"}
			}
			return word, err
		})
	}
	fetch, sms, order, flaky := child("fetch_user"), child("send_sms"), child("create_order"), child("flaky_api")
	mail = child("send_email")
	again := durable.RetryPolicy{MaxAttempts: 3, Initial: 2 * time.Second, Max: 2 * time.Second}
	in := workedInput{ID: 42}
	gate := func(ctx durable.Context, name string) error {
		_, err := g.pass(ctx, durable.Info(ctx).ID, name)
		return err
	}
	mains = map[string]*durable.Function[string, string]{}
	add := func(name string, fn func(ctx durable.Context) (string, error)) {
		mains[name] = durable.NewFunction("worked-"+name, func(ctx durable.Context, _ string) (string, error) {
			if err := gate(ctx, "begin"); err != nil {
				return "", err
			}
			return fn(ctx)
		})
	}
	add("full", func(ctx durable.Context) (string, error) {
		if _, err := durable.Random(ctx); err != nil {
			return "", err
		}
		user, err := durable.Call(ctx, fetch, in)
		if err != nil {
			return "", err
		}
		if err := gate(ctx, "fetched"); err != nil {
			return "", err
		}
		set, err := durable.NewJoinSet[string](ctx)
		if err != nil {
			return "", err
		}
		for _, fn := range []*durable.Function[workedInput, string]{mail, sms} {
			var options []durable.CallOption
			if fn == mail {
				options = append(options, durable.CallRetry(again))
			}
			f, err := durable.Go(ctx, fn, in, options...)
			if err != nil {
				return "", err
			}
			if err := set.Submit(ctx, f); err != nil {
				return "", err
			}
		}
		words := []string{user}
		for set.Len() > 0 {
			f, err := set.Next(ctx)
			if err != nil {
				return "", err
			}
			word, err := f.Get(ctx)
			if err != nil {
				return "", err
			}
			if err := gate(ctx, "got-"+word); err != nil {
				return "", err
			}
			words = append(words, word)
		}
		return strings.Join(words, ", "), nil
	})
	type approval struct {
		Approved bool `json:"approved"`
	}
	for _, name := range []string{"buffered", "blocking"} {
		add(name, func(ctx durable.Context) (string, error) {
			what, err := durable.Call(ctx, order, in)
			if err != nil {
				return "", err
			}
			if err := gate(ctx, "ordered"); err != nil {
				return "", err
			}
			a, err := durable.WaitSignal[approval](ctx, "user_approval")
			return fmt.Sprintf("%s, approved: %t", what, a.Approved), err
		})
	}
	add("retry", func(ctx durable.Context) (string, error) {
		f, err := durable.Go(ctx, flaky, in, durable.CallRetry(again))
		if err != nil {
			return "", err
		}
		id := durable.Info(ctx).ID
		if _, err := durable.Run(ctx, "meanwhile", func(ctx context.Context) (string, error) {
			return g.pass(ctx, id, "meanwhile")
		}); err != nil {
			return "", err
		}
		return f.Get(ctx)
	})
	add("step", func(ctx durable.Context) (string, error) {
		id := durable.Info(ctx).ID
		return durable.Run(ctx, "flaky_api", func(ctx context.Context) (string, error) {
			s := durable.StepInfo(ctx)
			word, err := g.pass(ctx, id, fmt.Sprint("attempt-", s.Attempt))
			if err == nil && word == gateFails {
				return "", &durable.Error{Type: "err", Message: "the first attempt fails"}
			}
			return word, err
		}, durable.WithRetry(again))
	})
	return mains, []*durable.Function[workedInput, string]{fetch, sms, order, flaky}, mail
}

// beWorked works until a signal stops the process.
func beWorked(how []string) error {
	if len(how) < 3 {
		return fmt.Errorf("%s has %d words, not 3", workedEnv, len(how))
	}
	cl, err := client.Dial(client.Options{Addrs: how[2:], Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w := durable.NewWorker(cl, durable.WorkerOptions{Name: how[0], Lease: workedLease, Concurrency: 32, StopGrace: time.Second})
	mains, children, mail := workedFunctions(gates(how[1]))
	if how[0] == workedMail {
		w.Register(mail)
		return w.Run(ctx)
	}
	for _, fn := range mains {
		w.Register(fn)
	}
	for _, fn := range children {
		w.Register(fn)
	}
	return w.Run(ctx)
}
