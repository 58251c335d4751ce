package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure/client"
	"perdure/durable"
	"perdure/embed"
)

// formats holds the data of real nodes as former versions wrote it: one that was stopped in order, and one as kill -9
// leaves it, each with what the node said of its executions, and a store with one backup of that node. A new fixture is
// added for each release; none is replaced.
const formats = "testdata/formats"

// backupSuffix ends the name of a fixture that is a store of backups.
const backupSuffix = "-backup.tar.gz"

// expected is the file of a fixture with the journals of its executions, in the form of `perdure journal`.
const expected = "EXPECTED.json"

var writeFixtures = flag.String("formats.write", "", "write fixtures of the present format, with this prefix, as "+formats+"/PREFIX-stopped.tar.gz, -killed.tar.gz and -backup.tar.gz")

// fixtureIDs are the executions and runs of a real node whose journals a fixture has.
var fixtureIDs = []string{"done", "failed", "cancelled", "sleeping", "calling", "calling:0", "asking", "holding", "waiting", "retried", "retried:0", ownChild, "caller", "flow", "made", "lost"}

func TestWriteFormats(t *testing.T) {
	if *writeFixtures == "" {
		t.Skip("-formats.write names no prefix")
	}
	n := aRealNode(t)
	node, sh := serve(t, copyOf(t, n.stopped))
	journals := map[string]string{}
	for _, id := range fixtureIDs {
		text, stderr, code := sh.run("journal", id, "--json")
		if code != 0 {
			t.Fatalf("journal of %s: %s", id, stderr)
		}
		journals[id] = text
	}
	store := filepath.Join(t.TempDir(), "store")
	mustJSON(t, sh, "backup", "create", store)
	must(t, node.Close(t.Context()))
	b, err := json.MarshalIndent(journals, "", " ")
	must(t, err)
	must(t, os.MkdirAll(formats, 0o755))
	for what, dir := range map[string]string{"stopped": copyOf(t, n.stopped), "killed": copyOf(t, n.killed), "backup": store} {
		must(t, os.WriteFile(filepath.Join(dir, expected), b, 0o600))
		must(t, pack(dir, filepath.Join(formats, *writeFixtures+"-"+what+".tar.gz")))
	}
}

// Data of every former version opens: verify finds nothing wrong, each journal begins as it was, and what was open goes
// on to its end. A backup of every former version verifies and is restored into another number of partitions likewise.
func TestFormats(t *testing.T) {
	fixtures, err := filepath.Glob(formats + "/*.tar.gz")
	must(t, err)
	if len(fixtures) < 3 {
		t.Errorf("only %d fixtures", len(fixtures))
	}
	for _, fixture := range fixtures {
		t.Run(strings.TrimSuffix(filepath.Base(fixture), ".tar.gz"), func(t *testing.T) {
			t.Parallel() // it waits for its node
			dir := filepath.Join(t.TempDir(), "data")
			must(t, unpack(fixture, dir))
			var journals map[string]string
			b, err := os.ReadFile(filepath.Join(dir, expected))
			must(t, err)
			must(t, json.Unmarshal(b, &journals))
			must(t, os.Remove(filepath.Join(dir, expected)))

			store := ""
			if strings.HasSuffix(fixture, backupSuffix) {
				store, dir = dir, filepath.Join(t.TempDir(), "restored")
				sh := &shell{addr: "127.0.0.1:1"} // it is not asked
				mustJSON(t, sh, "backup", "verify", store)
				if checked := mustJSON(t, sh, "verify", "--backup", store); checked["executions"].(float64) < float64(len(fixtureIDs)) {
					t.Errorf("verify --backup: %v", checked)
				}
			} else if got, stderr, code := verifyDir(t, dir); code != 0 || !got.OK || got.Executions < len(fixtureIDs) {
				t.Fatalf("verify --data: exit %d, %+v\n%s", code, got, stderr)
			}
			node, sh := serve(t, dir)
			if store != "" {
				if done := mustJSON(t, sh, "backup", "restore", store); done["from"] == done["partitions"] {
					t.Errorf("restored %v: into as many partitions", done)
				}
			}
			for id, was := range journals {
				if is, stderr, code := sh.run("journal", id, "--json"); code != 0 || !strings.HasPrefix(is, was) {
					t.Errorf("the journal of %s: exit %d %s\n%s\nwas\n%s", id, code, stderr, is, was)
				}
			}
			finish(t, sh.addr)
			if text, stderr, code := sh.run("verify"); code != 0 {
				t.Errorf("verify: exit %d\n%s%s", code, text, stderr)
			}
			must(t, node.Close(t.Context()))
		})
	}
}

// finish has a worker bring the executions of a real node that wait for signals to their ends.
func finish(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := client.Dial(client.Options{Addrs: []string{addr}, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	w := durable.NewWorker(c, durable.WorkerOptions{})
	register(w)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	for _, id := range []string{"calling:0", "asking", "holding", "retried:0", ownChild} {
		must(t, c.Signal(ctx, id, "go", []byte(`"on"`)))
	}
	must(t, c.Signal(ctx, "flow", "approve", []byte(`"yes"`)))
	for _, id := range []string{"calling", "asking", "holding", "retried", "flow"} {
		if out, err := c.Result(ctx, id); err != nil {
			t.Errorf("the result of %s: %q, %v", id, out, err)
		}
	}
	stop()
	must(t, errors.Join(<-ended, c.Close()))
}

func serve(t *testing.T, dir string) (*embed.Node, *shell) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	n, err := embed.Start(ctx, embed.Config{DataDir: dir, AuditShare: embed.NoShare, CheckInvariants: true,
		Retention:   []string{"forever"}, // what a fixture has was old long ago
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return n, &shell{addr: n.GRPCAddr()}
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "data")
	must(t, os.CopyFS(out, os.DirFS(dir)))
	return out
}

// pack writes a folder as an archive, without times and owners.
func pack(dir, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(b))}); err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
	return errors.Join(err, w.Close(), z.Close(), f.Close())
}

func unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
}
