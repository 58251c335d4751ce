package conformance

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// open reads a published data file of the journal spec.
func open(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(name, ".gz") {
		return data
	}
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	data, err = io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// label is the part of a case, or of a trace step, that says what is expected.
type label struct {
	Accept bool   `json:"accept"`
	Status string `json:"status"`
	Next   uint32 `json:"nextChildSeq"`
}

type answer struct {
	ID string `json:"id"`
	label
}

func run(t *testing.T, input []byte) []answer {
	t.Helper()
	var out bytes.Buffer
	if err := CheckLines(bytes.NewReader(input), &out); err != nil {
		t.Fatal(err)
	}
	var answers []answer
	lines := bufio.NewScanner(&out)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		answers = append(answers, a)
	}
	return answers
}

// Every published case gets the verdict that its ruled label gives, its status and its next child number.
func TestPublishedCases(t *testing.T) {
	input := open(t, "cases.jsonl.gz")
	var want []answer
	lines := json.NewDecoder(bytes.NewReader(input))
	for lines.More() {
		var c struct {
			ID    string
			Ruled label
		}
		if err := lines.Decode(&c); err != nil {
			t.Fatal(err)
		}
		want = append(want, answer{c.ID, c.Ruled})
	}
	if len(want) != 5736 {
		t.Fatalf("read %d cases, published are 5736", len(want))
	}
	compare(t, want, run(t, input))
}

func compare(t *testing.T, want, got []answer) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d verdicts for %d cases", len(got), len(want))
	}
	wrong := 0
	for i := range want {
		if got[i] != want[i] {
			if wrong++; wrong <= 20 {
				t.Errorf("got %+v, want %+v", got[i], want[i])
			}
		}
	}
	t.Logf("%d of %d agree", len(want)-wrong, len(want))
}

// Every step of every simulator trace, and of the four worked journals, gets the verdict expected of it:
// the journal accepted so far, then the step. Steps of several executions interleave.
func TestPublishedTraces(t *testing.T) {
	for _, name := range []string{"examples.jsonl", "traces.jsonl.gz"} {
		t.Run(name, func(t *testing.T) {
			var cases bytes.Buffer
			var want []answer
			lines := json.NewDecoder(bytes.NewReader(open(t, name)))
			traces := 0
			for lines.More() {
				var trace tracedRun
				if err := lines.Decode(&trace); err != nil {
					t.Fatal(err)
				}
				traces++
				want = append(want, trace.cases(t, &cases)...)
			}
			t.Logf("%d traces", traces)
			compare(t, want, run(t, cases.Bytes()))
		})
	}
}

type tracedRun struct {
	ID    string
	Spec  string
	Steps []struct {
		EID    json.RawMessage
		TS     int64
		Event  json.RawMessage
		Status string
		Next   uint32 `json:"nextChildSeq"`
		Ruled  *label
	}
}

// cases writes a trace as one case per step and returns the expected answers. A refused step is left out
// of the journal of those that follow.
func (run tracedRun) cases(t *testing.T, w *bytes.Buffer) []answer {
	t.Helper()
	type entry struct {
		Seq   int             `json:"seq"`
		TS    int64           `json:"ts"`
		Event json.RawMessage `json:"event"`
	}
	journals := map[string][]entry{}
	var want []answer
	for _, step := range run.Steps {
		expected := label{Accept: true, Status: step.Status, Next: step.Next}
		if step.Ruled != nil {
			expected = *step.Ruled
		} else if run.Spec != "ruled" {
			t.Fatalf("trace %s: a step without its ruled outcome", run.ID)
		}
		eid := string(step.EID)
		before := journals[eid]
		next := entry{Seq: len(before), TS: step.TS, Event: step.Event}
		line, err := json.Marshal(map[string]any{
			"id": run.ID, "eid": step.EID, "journal": append([]entry{}, before...), "append": next,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Write(append(line, '\n'))
		want = append(want, answer{run.ID, expected})
		if expected.Accept {
			journals[eid] = append(before, next)
		}
	}
	return want
}
