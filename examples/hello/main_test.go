package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"perdure/client"
	"perdure/embed"
	"perdure/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The program runs against a node, twice: its second start finds the finished execution.
func TestRun(t *testing.T) {
	cfg := embed.DefaultConfig()
	cfg.DataDir = t.TempDir()
	cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr, cfg.GossipAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n, err := embed.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.Dial(client.Options{Addrs: []string{n.GRPCAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.Start(ctx, client.StartOptions{ID: "order-42", Function: order.Name(), Input: []byte(`{"ID":"order-42","Cents":1999}`),
		AllowUnknownFunction: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, "order-42", "picked", []byte(`"B7"`)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := run(ctx, n.GRPCAddr()); err != nil {
			t.Fatal(err)
		}
	}
	if receipt, err := c.Result(ctx, "order-42"); err != nil || string(receipt) != `"paid 1999 cents under order-42:0, from shelf B7"` {
		t.Errorf("%s, %v", receipt, err)
	}
}

// The Go code in the README is this program's.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("README.md has no Go block")
	}
	for _, b := range blocks {
		code, _, _ := strings.Cut(b, "```")
		if !strings.Contains(string(program), code) {
			t.Errorf("README.md has code that examples/hello/main.go lacks:\n%s", code)
		}
	}
}
