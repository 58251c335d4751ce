package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"perdure/client"
	"perdure/durable"
	"perdure/embed"
	"perdure/internal/testkit"
)

// bankNode is a node with a worker that serves accounts, and a function that locks one until it is cancelled.
func bankNode(t *testing.T) *shell {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	node, err := embed.Start(ctx, embed.Config{
		DataDir: filepath.Join(t.TempDir(), "data"), Partitions: 3, Logger: slog.New(slog.DiscardHandler),
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	c, err := client.Dial(client.Options{Addrs: []string{node.GRPCAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	account := durable.NewEntity("account",
		durable.Op("add", func(_ *durable.EntityContext, cents *int, amount int) (int, error) {
			if *cents+amount < 0 {
				return 0, &durable.Error{Type: "overdrawn", Message: "the balance is too low"}
			}
			*cents += amount
			return *cents, nil
		}))
	hold := durable.NewFunction("hold", func(ctx durable.Context, who string) (string, error) {
		if _, err := durable.Lock(ctx, account.ID(who)); err != nil {
			return "", err
		}
		return durable.WaitSignal[string](ctx, "released")
	})
	deaf := durable.NewFunction("deaf", func(ctx durable.Context, _ string) (string, error) {
		return durable.Run(ctx, "wait", func(context.Context) (string, error) { <-t.Context().Done(); return "", nil })
	})
	w := durable.NewWorker(c, durable.WorkerOptions{StopGrace: 1})
	w.Register(account, hold, deaf)
	working, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	<-w.Ready()
	return &shell{addr: node.GRPCAddr()}
}

// The commands say what an entity answers, what is missing, and what a call waits for.
func TestEntityCommands(t *testing.T) {
	t.Parallel() // it waits most of the time
	sh := bankNode(t)
	for _, step := range []struct {
		args string
		code int
		says []string
	}{
		{"entity call account@ann add --input 5", exitDone, []string{"5"}},
		{"entity call account@ann add --input -7", exitFailed, []string{
			`operation "add" of entity "account@ann" failed: overdrawn: the balance is too low`, "reason: OPERATION_FAILED"}},
		{"entity call nobody@ann add", exitNotFound, []string{`entity "nobody"`, "hint: start a worker that has the entity; the id is NAME@KEY"}},
		{"entity get account@bob", exitNotFound, []string{"id: account@bob", "perdure entity list the entities"}},
		{"describe account@ann", exitNotFound, []string{"perdure entity list the entities"}},
		{"start hold --id h --input \"ann\"", exitDone, nil},
		{"until entity get account@ann", exitDone, []string{"Lock       h"}},
		{"entity call account@ann add --input 1 --wait 3s", exitUnavailable, []string{
			`operation "add" of "account@ann" has not ended within 3s`, "it may still run; perdure entity get account@ann shows the queue and the lock"}},
		{"entity call account@ann add --wait 0s", exitUsage, []string{"--wait 0s: must be more than 0"}},
		{"retry h", exitConflict, []string{"it has not failed, it is ", "perdure retry --digest pins an open one"}},
		{"cancel h --within 3s", exitUsage, []string{"--within is for --wait"}},
		{"cancel h --wait --within 30s", exitDone, []string{"h is cancelled"}},
		{"entity call account@ann add --input 1", exitDone, []string{"7"}}, // the call that was given up has run
		{"start deaf --id d --input \"\"", exitDone, nil},
		{"cancel d --wait --within 300ms", exitUnavailable, []string{`execution or clean-up of "d" has not ended within 300ms`, "perdure describe d shows what it waits for"}},
		{"terminate d", exitDone, nil},
	} {
		args, until := strings.CutPrefix(step.args, "until ")
		stdout, stderr, code := sh.run(strings.Fields(args)...)
		if until {
			testkit.EventuallySeen(t, deadline, step.says[0], func() (string, bool) {
				stdout, stderr, code = sh.run(strings.Fields(args)...)
				return stdout, strings.Contains(stdout, step.says[0])
			})
		}
		if code != step.code {
			t.Fatalf("%s: exit %d, want %d:\n%s%s", step.args, code, step.code, stdout, stderr)
		}
		for _, part := range step.says {
			if !strings.Contains(stdout+stderr, part) {
				t.Errorf("%s: no %q in:\n%s%s", step.args, part, stdout, stderr)
			}
		}
	}
}
