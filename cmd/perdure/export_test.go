package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// endedIDs are executions and runs of a real node that have ended: with spread children, failed, terminated, with a child and
// a timer, and graphs.
var endedIDs = []string{"done", "failed", "cancelled", "caller", "made", "lost"}

// What has ended is exported from one cluster and imported into another with other partitions, where the same reads
// say the same. Repeated imports change nothing; a damaged or cut file, another history and an open one are refused.
func TestExportImport(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	old, from := serve(t, copyOf(t, aRealNode(t).stopped))
	defer func() { must(t, old.Close(context.WithoutCancel(ctx))) }()
	to := &shell{addr: aNode(ctx, t, 5).GRPCAddr()}
	dir := t.TempDir()
	for _, id := range endedIDs {
		text, stderr, code := from.run("export", id)
		if code != exitDone {
			t.Errorf("export %s: exit %d: %s", id, code, stderr)
			continue
		}
		file := filepath.Join(dir, id+".jsonl")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		for n, want := range []string{"stored", "existed"} {
			out, stderr, code := to.run("import", file, "--json")
			if code != exitDone || !strings.Contains(out, `"`+want+`":`) {
				t.Errorf("import %s, time %d: exit %d: %s%s", id, n, code, out, stderr)
			}
		}
		was, _, _ := from.run("journal", id, "--json")
		is, stderr, code := to.run("journal", id, "--json")
		if code != exitDone || is != was || was == "" {
			t.Errorf("the journal of %s: exit %d %s\n%s\nwas\n%s", id, code, stderr, is, was)
		}
		again, _, _ := to.run("export", id)
		if !slices.Equal(recordsOf(again), recordsOf(text)) {
			t.Errorf("%s is exported as\n%s\nwas\n%s", id, again, text)
		}
	}
	if text, stderr, code := to.run("verify"); code != exitDone {
		t.Errorf("verify: exit %d\n%s%s", code, text, stderr)
	}
	if _, stderr, code := from.run("export", "asking"); code != exitConflict || !strings.Contains(stderr, "has not ended") {
		t.Errorf("an open execution: exit %d: %s", code, stderr)
	}
	story := filepath.Join(dir, "caller.jsonl")
	// A repeated import completes an interrupted one. It leaves a tree of another cluster as it is.
	if out, stderr, code := to.run("purge", "caller", "--force"); code != exitDone {
		t.Fatalf("purge: exit %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := to.run("import", story, "--dry-run"); code != exitDone || !strings.Contains(out, "can be stored") {
		t.Errorf("dry run: exit %d: %s%s", code, out, stderr)
	}
	if _, stderr, code := to.run("describe", "caller"); code != exitNotFound {
		t.Errorf("a dry run has stored: exit %d: %s", code, stderr)
	}
	text, err := os.ReadFile(story)
	must(t, err)
	to.stdin = string(text)
	if out, stderr, code := to.run("import", "-", "--json"); code != exitDone || !strings.Contains(out, `"stored":1,`) {
		t.Errorf("the rest, from standard input: exit %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := to.run("import", story, "--namespace", "archive"); code != exitDone || !strings.Contains(out, "0 existed") {
		t.Errorf("into another namespace: exit %d: %s%s", code, out, stderr)
	}
	if out, stderr, code := to.run("start", "anything", "--id", "failing", "--allow-unknown-function"); code != exitDone {
		t.Fatalf("start: exit %d: %s%s", code, out, stderr)
	}
	other := strings.ReplaceAll(endedOf(t, dir, "failed"), `"failed"`, `"failing"`)
	taken := filepath.Join(dir, "taken.jsonl")
	must(t, os.WriteFile(taken, []byte(resum(other)), 0o600))
	if _, stderr, code := to.run("import", taken); code != exitConflict || !strings.Contains(stderr, "another history") {
		t.Errorf("over an open execution: exit %d: %s", code, stderr)
	}
	// Children elsewhere that were deleted are named.
	child := ""
	for _, line := range strings.Split(string(text), "\n") {
		if id, ok := strings.CutPrefix(line, `{"tree":"`); ok && !strings.HasPrefix(id, "caller") {
			child = strings.TrimSuffix(id, `"}`)
		}
	}
	if child != "" {
		if out, stderr, code := to.run("purge", child, "--force"); code != exitDone {
			t.Fatalf("purge of %s: exit %d: %s%s", child, code, out, stderr)
		}
		if out, stderr, code := to.run("export", "caller"); code != exitDone || !strings.Contains(out, `{"missing":"`+child+`"}`) || !strings.Contains(stderr, "1 child tree had been deleted") {
			t.Errorf("without a child: exit %d: %s", code, stderr)
		}
	}
}

// endedOf reads an exported file.
func endedOf(t *testing.T, dir, id string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, id+".jsonl"))
	must(t, err)
	return string(b)
}

// resum gives a changed file the hash of its bytes, as nobody does by accident.
func resum(text string) string {
	at := strings.Index(text, `{"end":`)
	var last historyLine
	if err := json.Unmarshal([]byte(text[at:]), &last); err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(text[:at]))
	last.End.SHA256 = hex.EncodeToString(sum[:])
	b, err := last.encode()
	if err != nil {
		panic(err)
	}
	return text[:at] + string(b)
}

// A file of histories is read only as it was written: no bit may differ, no byte be missing or more.
func TestReadHistories(t *testing.T) {
	w := func(lines ...string) string {
		return resum(strings.Join(lines, "\n") + "\n" + `{"end":{"trees":1,"records":2,"sha256":""}}`)
	}
	first := `{"format":"perdure-history","version":1,"namespace":"default","id":"a"}`
	rec := `{"execution":{"id":"a","function":"f","status":"EXECUTION_STATUS_COMPLETED"}}`
	good := w(first, `{"tree":"a"}`, rec, `{"promise":{"id":"a"}}`, `{"missing":"b"}`)
	trees, err := readHistories(strings.NewReader(good))
	if err != nil || len(trees) != 1 {
		t.Fatalf("%d trees, %v", len(trees), err)
	}
	if records, err := trees[0].read("x", strings.NewReader(good)); err != nil || len(records) != 2 || records[0].GetExecution().Function != "f" {
		t.Errorf("%v, %v", records, err)
	}
	for i := range good {
		for bit := range 8 {
			bad := []byte(good)
			bad[i] ^= 1 << bit
			if _, err := readHistories(bytes.NewReader(bad)); err == nil {
				t.Errorf("byte %d as %q: nothing is found", i, bad[i])
			}
		}
		if _, err := readHistories(strings.NewReader(good[:i])); err == nil {
			t.Errorf("cut at byte %d: nothing is found", i)
		}
	}
	for what, bad := range map[string]string{
		"longer":                         good + rec + "\n",
		"lines out of order":             strings.Replace(good, rec+"\n"+`{"promise":{"id":"a"}}`, `{"promise":{"id":"a"}}`+"\n"+rec, 1),
		"of another format":              w(strings.Replace(first, "perdure", "other", 1), `{"tree":"a"}`, rec, rec),
		"of a newer version":             w(strings.Replace(first, `"version":1`, `"version":2`, 1), `{"tree":"a"}`, rec, rec),
		"a record of no tree":            w(first, rec, `{"tree":"a"}`, rec),
		"a record behind a missing tree": w(first, `{"tree":"a"}`, rec, `{"missing":"b"}`, rec),
		"a record too few":               w(first, `{"tree":"a"}`, rec),
		"a first line in the middle":     w(first, `{"tree":"a"}`, rec, first, rec),
		"no JSON":                        w(first, `{"tree":"a"}`, rec, "{"),
		"an endless line":                first + "\n" + strings.Repeat("x", maxHistoryLine+2),
	} {
		if _, err := readHistories(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: nothing is found", what)
		}
	}
	unknown := w(first, `{"tree":"a"}`, rec, `{"surprise":{}}`)
	trees, err = readHistories(strings.NewReader(unknown))
	must(t, err)
	if _, err := trees[0].read("x", strings.NewReader(unknown)); err == nil {
		t.Error("a record of an unknown kind: nothing is found")
	}
	huge := `{"event":{"id":"a","entry":{"event":{"executionCompleted":{"result":"` + strings.Repeat("AAAA", 3<<20) + `"}}}}}`
	large := w(first, `{"tree":"a"}`, huge, huge)
	trees, err = readHistories(strings.NewReader(large))
	must(t, err)
	refused := (*api.Error)(nil)
	if _, err := trees[0].read("x", strings.NewReader(large)); !errors.As(err, &refused) || refused.Reason != perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE {
		t.Errorf("a tree of 18 MiB: %v", err)
	}
}

// recordsOf are the lines of a file of histories between its first and its last.
func recordsOf(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < 3 {
		return nil
	}
	out := lines[1 : len(lines)-1]
	slices.Sort(out)
	return out
}
