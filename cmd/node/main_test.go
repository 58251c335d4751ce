package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"perdure/embed"
	"perdure/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { testkit.Main(m) }

// deadline bounds every wait of a test; nothing waits for it to pass.
const deadline = time.Minute

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}

// fakeNode replaces a node: its Close returns when the test lets it, or never.
type fakeNode struct {
	done     chan struct{}
	err      error
	closeErr error
	// closing is closed when Close begins; Close then waits for closeMay, when there is one.
	closing  chan struct{}
	closeMay chan struct{}
	grace    time.Duration
}

func newFakeNode() *fakeNode {
	return &fakeNode{done: make(chan struct{}), closing: make(chan struct{})}
}

func (n *fakeNode) GRPCAddr() string      { return "127.0.0.1:7400" }
func (n *fakeNode) HTTPAddr() string      { return "127.0.0.1:7401" }
func (n *fakeNode) Done() <-chan struct{} { return n.done }
func (n *fakeNode) Err() error            { return n.err }
func (n *fakeNode) Close(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok {
		n.grace = time.Until(end)
	}
	close(n.closing)
	if n.closeMay != nil {
		select {
		case <-n.closeMay:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return n.closeErr
}

// world is a process under test.
type world struct {
	process
	out, err buffer
	signals  chan os.Signal
	exits    chan int
	env      map[string]string
	configs  chan embed.Config
	result   chan int
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(start func(ctx context.Context, cfg embed.Config) (server, error)) *world {
	w := &world{
		signals: make(chan os.Signal),
		exits:   make(chan int, 1),
		env:     map[string]string{},
		configs: make(chan embed.Config, 1),
		result:  make(chan int, 1),
	}
	w.process = process{
		stdout:  &w.out,
		stderr:  &w.err,
		lookup:  func(name string) (string, bool) { v, ok := w.env[name]; return v, ok },
		signals: w.signals,
		exit:    func(code int) { w.exits <- code },
		start: func(ctx context.Context, cfg embed.Config) (server, error) {
			w.configs <- cfg
			return start(ctx, cfg)
		},
	}
	return w
}

func running(n *fakeNode) *world {
	return newWorld(func(context.Context, embed.Config) (server, error) { return n, nil })
}

func (w *world) begin(args ...string) { go func() { w.result <- w.run(args) }() }

func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(deadline):
		t.Fatalf("waited %v for %s", deadline, what)
		panic("unreachable")
	}
}

func (w *world) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	select {
	case w.signals <- sig:
	case <-time.After(deadline):
		t.Fatalf("the process did not take the signal %v within %v; stderr: %s", sig, deadline, w.err.String())
	}
}

func TestDevBannerAndOrderlyStop(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		n := newFakeNode()
		w := running(n)
		w.begin("dev", "--shutdown-grace", "7m")
		cfg := receive(t, "the start", w.configs)
		if cfg.LogLevel != "warn" || cfg.DataDir != "./perdure-data" || cfg.Logger == nil {
			t.Errorf("dev starts with %+v", cfg)
		}
		w.signal(t, sig)
		if code := receive(t, "the exit code", w.result); code != exitDone {
			t.Errorf("%v: exit %d, stderr %s", sig, code, w.err.String())
		}
		if n.grace <= 6*time.Minute || n.grace > 7*time.Minute {
			t.Errorf("Close has %v, want --shutdown-grace", n.grace)
		}
		if w.err.String() != "" {
			t.Errorf("stderr of an orderly dev: %s", w.err.String())
		}
		banner := regexp.MustCompile(`perdure \S+: ready in \S+`).ReplaceAllString(w.out.String(), "perdure VERSION: ready in TIME")
		golden(t, "banner.txt", banner)
	}
}

func TestBannerNamesAnotherAddress(t *testing.T) {
	w := running(nil)
	w.banner(embed.DefaultConfig(), otherAddr{newFakeNode()}, time.Second)
	if !strings.Contains(w.out.String(), "perdure start FUNCTION --addr 127.0.0.1:9999\n") {
		t.Errorf("banner:\n%s", w.out.String())
	}
}

type otherAddr struct{ *fakeNode }

func (otherAddr) GRPCAddr() string { return "127.0.0.1:9999" }

func TestStartLogsVersionSettingsAndStop(t *testing.T) {
	n := newFakeNode()
	w := running(n)
	w.env["PERDURE_NODE_ID"] = "from-env"
	w.begin("start", "--log-format", "json")
	if cfg := receive(t, "the start", w.configs); cfg.NodeID != "from-env" || cfg.LogLevel != "info" {
		t.Errorf("starts with %+v", cfg)
	}
	w.signal(t, syscall.SIGTERM)
	if code := receive(t, "the exit code", w.result); code != exitDone {
		t.Errorf("exit %d", code)
	}
	log := w.err.String()
	at := -1
	for _, want := range []string{`"msg":"starting","event":"node_starting","version":"`, `"settings":{"node-id":"from-env"`, `"msg":"ready","event":"node_ready","grpc":"127.0.0.1:7400"`, `"msg":"stopping"`, `"msg":"stopped"`} {
		next := strings.Index(log, want)
		if next <= at {
			t.Errorf("%s is missing or out of order in:\n%s", want, log)
		}
		at = next
	}
	if w.out.String() != "" {
		t.Errorf("start prints %q on stdout", w.out.String())
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	n := newFakeNode()
	n.closeMay = make(chan struct{})
	w := running(n)
	w.begin("start")
	receive(t, "the start", w.configs)
	w.signal(t, os.Interrupt)
	receive(t, "Close", n.closing)
	w.signal(t, syscall.SIGTERM)
	if code := receive(t, "the immediate exit", w.exits); code != exitFailed {
		t.Errorf("exit %d, want %d", code, exitFailed)
	}
	close(n.closeMay) // this exit returns; a real one does not
	receive(t, "the end of the run", w.result)
	if !strings.Contains(w.err.String(), "second signal (terminated): ending at once") {
		t.Errorf("stderr: %s", w.err.String())
	}
}

func TestGraceEndsAStopThatHangs(t *testing.T) {
	n := newFakeNode()
	n.closeMay = make(chan struct{})
	w := running(n)
	w.begin("start", "--shutdown-grace", "100ms")
	receive(t, "the start", w.configs)
	w.signal(t, os.Interrupt)
	if code := receive(t, "the exit code", w.result); code != exitFailed {
		t.Errorf("exit %d, want %d", code, exitFailed)
	}
	if !strings.Contains(w.err.String(), "node: did not stop in order: context deadline exceeded") {
		t.Errorf("stderr: %s", w.err.String())
	}
}

func TestNodeThatHaltsByItself(t *testing.T) {
	n := newFakeNode()
	n.err = errors.New("partition 2: the store is damaged")
	close(n.done)
	w := running(n)
	if code := w.run([]string{"start"}); code != exitFailed {
		t.Errorf("exit %d, want %d", code, exitFailed)
	}
	if !strings.Contains(w.err.String(), "node: halted: partition 2: the store is damaged\n") {
		t.Errorf("stderr: %s", w.err.String())
	}
	receive(t, "Close after a halt", n.closing)
}

func TestFailedStart(t *testing.T) {
	w := newWorld(func(context.Context, embed.Config) (server, error) {
		return nil, errors.New("listen tcp 127.0.0.1:7400: address already in use")
	})
	if code := w.run([]string{"dev"}); code != exitFailed {
		t.Errorf("exit %d, want %d", code, exitFailed)
	}
	if got := w.err.String(); got != "node: cannot start: listen tcp 127.0.0.1:7400: address already in use\n" {
		t.Errorf("stderr: %s", got)
	}
}

func TestSignalDuringStart(t *testing.T) {
	w := newWorld(func(ctx context.Context, _ embed.Config) (server, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	w.begin("start")
	receive(t, "the start", w.configs)
	w.signal(t, os.Interrupt)
	if code := receive(t, "the exit code", w.result); code != exitDone {
		t.Errorf("exit %d, want %d: a stop that was asked for", code, exitDone)
	}
	if !strings.Contains(w.err.String(), "stopped before ready") {
		t.Errorf("stderr: %s", w.err.String())
	}
}

func TestBadUsage(t *testing.T) {
	w := newWorld(func(context.Context, embed.Config) (server, error) {
		t.Error("a node is started in spite of bad usage")
		return newFakeNode(), nil
	})
	for _, args := range [][]string{
		{}, {"strat"}, {"start", "now"}, {"start", "--colour", "blue"}, {"dev", "--join", "127.0.0.1:1"},
		{"dev", "--peer-tls-ca", "ca.crt"}, {"dev", "--gossip-key-file", "gossip.keys"},
		{"start", "--join", "127.0.0.1"}, {"start", "--join", "127.0.0.1:7403"}, {"start", "--bootstrap-expect", "3"}, {"start", "--bootstrap-expect", "4"},
		{"start", "--tls-cert", "node.crt"},
		{"start", "--partitions", "2", "--log-store", "sqlite", "--grpc-addr", "0.0.0.0:7400"},
		{"start", "--config", filepath.Join(t.TempDir(), "none.yaml")},
		{"start", "--quota", "a=open:10", "--quota", "a=open:20"}, {"start", "--retention", "30d", "--retention", "7d"},
		{"start", "--retention", "forever", "--retention", "7d"},
	} {
		before := len(w.err.String())
		if code := w.run(args); code != exitUsage {
			t.Errorf("%v: exit %d, want %d", args, code, exitUsage)
		}
		if len(w.err.String()) == before {
			t.Errorf("%v: nothing on stderr", args)
		}
	}
	said := regexp.MustCompile(`open .*none.yaml`).ReplaceAllString(w.err.String(), "open FILE")
	golden(t, "usage_errors.txt", said)
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "dev", "start", "version"} {
		w := running(newFakeNode())
		args := []string{"--help"}
		name := "help.txt"
		if command != "" {
			args, name = []string{command, "--help"}, "help_"+command+".txt"
		}
		if code := w.run(args); code != exitDone {
			t.Errorf("%v: exit %d", args, code)
		}
		if !strings.Contains(w.out.String(), "Examples:\n") {
			t.Errorf("%v: no example", args)
		}
		golden(t, name, w.out.String())
	}
}

func TestVersion(t *testing.T) {
	w := running(newFakeNode())
	if code := w.run([]string{"version"}); code != exitDone {
		t.Errorf("exit %d", code)
	}
	if !regexp.MustCompile(`^perdure node \S+ go1\S+ \w+/\w+\n$`).MatchString(w.out.String()) {
		t.Errorf("version prints %q", w.out.String())
	}
}

func TestConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perdure.yaml")
	if err := os.WriteFile(path, []byte("node-id: from-file\nlog-level: error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := newFakeNode()
	w := running(n)
	w.begin("dev", "--config", path, "--node-id=from-flag")
	cfg := receive(t, "the start", w.configs)
	if cfg.NodeID != "from-flag" || cfg.LogLevel != "error" || cfg.File != path {
		t.Errorf("starts with %+v", cfg)
	}
	w.signal(t, os.Interrupt)
	receive(t, "the exit code", w.result)
}

// TestRepeatedFlags joins lists that are given in several flags; no rule for a namespace vanishes without a word.
func TestRepeatedFlags(t *testing.T) {
	n := newFakeNode()
	w := running(n)
	w.env["PERDURE_QUOTA"] = "c=open:9"
	w.begin("dev", "--quota", "a=open:10", "--quota", "b=open:20", "--quota", "bytes:1GiB", "--quota=a=starts:5/s",
		"--retention", "7d", "--retention", "a=forever,keep 10", "--node-id", "n1", "--node-id", "n2")
	cfg := receive(t, "the start", w.configs)
	if got, want := strings.Join(cfg.Quota, " "), "a=open:10 b=open:20 bytes:1GiB a=starts:5/s"; got != want {
		t.Errorf("quotas %q, want %q", got, want)
	}
	if got, want := strings.Join(cfg.Retention, " | "), "7d | a=forever | keep 10"; got != want {
		t.Errorf("retention %q, want %q", got, want)
	}
	if cfg.NodeID != "n2" {
		t.Errorf("node id %q, want the last", cfg.NodeID)
	}
	w.signal(t, os.Interrupt)
	receive(t, "the exit code", w.result)
}
