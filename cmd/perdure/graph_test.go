package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
)

const reportFile = "testdata/graphs/report.yaml"

func TestGraph(t *testing.T) {
	sh := &shell{addr: pressroom(t).serve(t)}
	report, err := os.ReadFile(reportFile)
	if err != nil {
		t.Fatal(err)
	}
	sh.story(t, "graph",
		"# The id is printed, so that a script can keep it.",
		`graph submit `+reportFile+` --id r1 --input '{"file": "in.csv"}'`,
		"# The same again finds it; something else under this id does not.",
		`graph submit `+reportFile+` --id r1 --input '{"file": "in.csv"}'`,
		`graph submit `+reportFile+` --id r1 --input '{"file": "out.csv"}'`,
		"graph submit "+reportFile+" --id r2 --json",
		"<"+string(report),
		"graph submit - --input-file testdata/in.json",
		"# The problems of a file are reported with their lines, before anything is sent.",
		"graph submit testdata/graphs/broken.yaml --id r3",
		"graph validate testdata/graphs/broken.yaml --json",
		"graph validate testdata/graphs/none.yaml",
		"graph validate "+reportFile,
		"graph validate "+reportFile+" --json",
		"<{\"nodes\": [{\"id\": \"a\"}]}",
		"graph validate -",
		"# So is what cannot be right besides.",
		"graph submit",
		"graph submit "+reportFile+" --id a:b",
		"graph submit "+reportFile+" --input '{'",
		"graph submit "+reportFile+" --input-file testdata/none.json",
		"graph submit "+reportFile+" --input 1 --input-file testdata/in.json",
		"graph submit "+reportFile+" --timeout -1s",
		"graph submit "+reportFile+" --tag x",
		"graph submit - --input -",
		"graph",
		"graph statsu",
		"# How far a run is.",
		"graph status report-7",
		"graph status report-9",
		"graph status report-9 --json",
		"graph status none",
		"# The outcomes of nodes.",
		"graph outcome report-7 parse",
		"graph outcome report-7 parse --json",
		"graph outcome report-7 rates",
		"graph outcome report-7 approve",
		"graph outcome report-9 tidy",
		"graph outcome report-9 tidy --json",
		"graph outcome report-9 send",
		"graph outcome report-7 none",
		"graph outcome report-7",
		"# The graph itself.",
		"graph show report-7",
		"graph show none",
		"# Again, from what has failed.",
		"graph retry report-7",
		"graph retry none",
		"graph retry report-9",
		"graph retry report-9 --json",
	)
}

func TestGraphHelp(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	sh.story(t, "help_graph", "graph --help", "graph submit --help", "graph status --help", "graph watch --help", "graph outcome --help",
		"graph retry --help", "graph show --help", "graph dot --help", "graph svg --help", "graph validate --help")
}

// Watching in a pipe: a line for what has changed, and the exit code of the run.
func TestGraphWatch(t *testing.T) {
	sh := &shell{addr: pressroom(t).serve(t)}
	sh.story(t, "graph_watch",
		"graph watch report-7",
		"# Nodes that ended before the watch are only counted.",
		"graph watch report-7",
		"graph watch report-7 --json",
		"graph watch report-9",
		"graph watch none",
		"graph retry report-9 --watch",
		"graph submit "+reportFile+" --id w1 --watch",
	)
}

// graph draw prints what package draw draws, of the file alone or with the states of a run.
func TestGraphDraw(t *testing.T) {
	sh := &shell{addr: pressroom(t).serve(t)}
	for arg, want := range map[string][]string{
		reportFile: {`digraph "report"`, `"parse" -> "approve"`},
		"report-9": {`digraph "report"`, `"parse" -> "approve"`, "failed", "skipped"},
	} {
		stdout, stderr, code := sh.run("graph", "dot", arg)
		for _, w := range want {
			if code != exitDone || !strings.Contains(stdout, w) {
				t.Errorf("%s: exit %d, %q is not there:\n%s%s", arg, code, w, stdout, stderr)
			}
		}
	}
	for arg, want := range map[string]int{"none": exitNotFound, "testdata/graphs/broken.yaml": exitUsage} {
		if stdout, _, code := sh.run("graph", "svg", arg); code != want || stdout != "" {
			t.Errorf("%s: exit %d, want %d: %s", arg, code, want, stdout)
		}
	}
	for arg, want := range map[string][]string{
		reportFile: {`data-node="parse"`, `data-state=""`, ">report<"},
		"report-9": {`data-node="tidy"`, `data-state="failed"`, `data-state="skipped"`, "report-9 (report): failed"},
	} {
		stdout, stderr, code := sh.run("graph", "svg", arg)
		if code != exitDone {
			t.Errorf("%s: exit %d: %s", arg, code, stderr)
		}
		for _, w := range want {
			if !strings.Contains(stdout, w) {
				t.Errorf("%s: %q is not in the picture:\n%s", arg, w, stdout)
			}
		}
		for d := xml.NewDecoder(strings.NewReader(stdout)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", arg, err)
			}
		}
	}
	// An argument that names a file is the file, unless a flag says that it is a run.
	t.Chdir("testdata/graphs")
	if stdout, _, code := sh.run("graph", "dot", "report.yaml"); code != exitDone || !strings.Contains(stdout, "parse") {
		t.Errorf("a file: exit %d: %s", code, stdout)
	}
	if _, stderr, code := sh.run("graph", "dot", "report.yaml", "--run"); code != exitNotFound {
		t.Errorf("a run that is named like a file: exit %d: %s", code, stderr)
	}
}

// The request carries the values of submit's flags.
func TestGraphSubmitSends(t *testing.T) {
	g := pressroom(t)
	sh := &shell{addr: g.serve(t)}
	if _, stderr, code := sh.run("--timeout", "5s", "graph", "submit", reportFile, "--id", "x", "--timeout", "90s", "--tag", "team=press", "--namespace", "acme",
		"--input", "@testdata/in.json", "--allow-unknown-function"); code != exitDone {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	want, err := os.ReadFile("testdata/in.json")
	if err != nil {
		t.Fatal(err)
	}
	r := g.last
	if r.Namespace != "acme" || r.Id != "x" || r.TimeoutMs != 90_000 || r.Tags["team"] != "press" || !bytes.Equal(r.Input, want) ||
		!r.AllowUnknownFunctions || len(r.GetRequest().GetId()) != 16 || len(r.GetGraph().GetNodes()) != 5 || r.GetGraph().GetMaxParallel() != 4 {
		t.Errorf("sent %v", r)
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// A picture fits its terminal, of any size, and shows the important lines first.
func TestGraphFrame(t *testing.T) {
	g := pressroom(t)
	a := testApp(&bytes.Buffer{})
	var b strings.Builder
	for _, s := range append(g.statuses["report-7"], g.statuses["report-9"]...) {
		for _, r := range a.graphFrame(s, 72, 24) {
			b.WriteString(r.text(71, false) + "\n")
		}
		b.WriteString("\n")
	}
	golden(t, "graph_frame.txt", b.String())

	many := &perdurev1.GraphStatus{Id: "many", Phase: "progressing", CreatedMs: at(time.Hour)}
	for i := range 500 {
		n := &perdurev1.GraphNodeState{Id: strings.Repeat("n", 1+i%130), Kind: "function f", Status: perdurev1.NodeStatus_NODE_STATUS_RUNNING, Attempt: 1, StartedMs: at(time.Minute)}
		if i == 499 {
			n.Id, n.Status, n.Failure = "bad", perdurev1.NodeStatus_NODE_STATUS_FAILED, &perdurev1.Failure{Type: "x", Message: strings.Repeat("ü", 300)}
		}
		many.Nodes = append(many.Nodes, n)
	}
	for _, size := range [][2]int{{80, 24}, {20, 5}, {200, 60}, {10, 2}, {1, 1}} {
		width, height := size[0], size[1]
		rows := a.graphFrame(many, width, height)
		if len(rows) >= max(height, 6) {
			t.Errorf("%d rows in a terminal of %d", len(rows), height)
		}
		for _, r := range rows {
			for _, colour := range []bool{false, true} {
				if text := []rune(escapes.ReplaceAllString(r.text(width-1, colour), "")); len(text) > max(width-1, 0)+1 || width > 1 && len(text) >= width {
					t.Errorf("%d characters in a terminal of %d: %s", len(text), width, string(text))
				}
			}
		}
	}
	if rows := a.graphFrame(many, 80, 24); !strings.Contains(rows[3].text(79, false), "failed") || !strings.Contains(rows[len(rows)-1].text(79, false), "and 481 more") {
		t.Errorf("the failed node is not the first, or how many more there are is not the last:\n%v", rows)
	}
}

// In a terminal each picture replaces the one before.
func TestGraphWatchInATerminal(t *testing.T) {
	g := pressroom(t)
	addr := g.serve(t)
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, now: func() time.Time { return fakeNow }, zone: time.UTC, random: zeros{},
		terminal: true, lookup: func(string) (string, bool) { return "", false }}
	if code := a.run(t.Context(), []string{"graph", "watch", "report-7", "--addr", addr}); code != exitDone {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	screen := play(out.String())
	want := play(strings.Join([]string{"report-7 (report)  completed  21s", strings.Repeat("█", 50) + " 5/5", "4 completed, 1 skipped"}, "\n") + "\n")
	if screen != want {
		t.Errorf("the screen shows\n%s\nwant\n%s", screen, want)
	}
	if !strings.Contains(out.String(), "\x1b[32m") {
		t.Error("there are no colours")
	}

	out.Reset()
	g.statuses["report-7"] = pressroom(t).statuses["report-7"]
	a.lookup = func(name string) (string, bool) { return "", name == "NO_COLOR" }
	a.out = bufio.NewWriter(&out)
	if code := a.run(t.Context(), []string{"graph", "watch", "report-7", "--addr", addr}); code != exitDone || strings.Contains(out.String(), "\x1b[32m") || play(out.String()) != want {
		t.Errorf("without colours: exit %d, %q", code, out.String())
	}
}

// play returns the text that a terminal shows after these characters; it handles the few codes in use.
func play(text string) string {
	lines, at, column := [][]rune{{}}, 0, 0
	for text != "" {
		if code := escapes.FindStringIndex(text); code != nil && code[0] == 0 {
			seq := text[2 : code[1]-1]
			switch text[code[1]-1] {
			case 'A':
				n, err := strconv.Atoi(seq)
				if err != nil {
					panic(err)
				}
				at = max(0, at-n)
			case 'J':
				lines = lines[:at+1]
				fallthrough
			case 'K':
				lines[at] = lines[at][:min(column, len(lines[at]))]
			}
			text = text[code[1]:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch r {
		case '\n':
			at, column = at+1, 0
			if at == len(lines) {
				lines = append(lines, nil)
			}
		case '\r':
			column = 0
		default:
			for len(lines[at]) <= column {
				lines[at] = append(lines[at], ' ')
			}
			lines[at][column] = r
			column++
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.TrimRight(string(l), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// A watch ends when its user interrupts it, though the run continues.
func TestGraphWatchInterrupted(t *testing.T) {
	g := pressroom(t)
	g.shown, g.next = make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-g.shown
		cancel()
	}()
	sh := &shell{addr: g.serve(t), ctx: ctx}
	stdout, stderr, code := sh.run("graph", "watch", "report-7")
	if code != exitFailed || !strings.Contains(stderr, "interrupted") || !strings.Contains(stdout, "parse running") {
		t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
	}
}
