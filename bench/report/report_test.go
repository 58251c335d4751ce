package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"perdure/bench/report"
	"perdure/bench/suite"
)

// figures are two rounds of two cells, with a limit beside one.
func figures() []suite.Figures {
	var out []suite.Figures
	for round := range 2 {
		for _, under := range []int{1, 64} {
			f := suite.Figures{Letter: "B", Workload: "steps", Title: "steps <of> three", Unit: "executions", Nodes: 3, Concurrency: under, Payload: 4096,
				Round: round + 1, PerSecond: float64(100*under + round*10), ServerCPU: 2, WorkerCPU: 0.5, ClientCPU: 0.25, ServerRSS: 1e8}
			f.Latency.P50, f.Latency.P99 = 5, 50
			for range suite.Percentiles {
				f.Latency.Curve = append(f.Latency.Curve, 5)
			}
			out = append(out, f)
		}
		limit := out[len(out)-1]
		limit.Binary, limit.PerSecond, limit.ServerCPU = suite.Writing, 12_800, 0.5
		out = append(out, limit)
	}
	failover := out[0]
	failover.Letter, failover.Workload, failover.OutageMs, failover.Timeline = "G", "failover", 40, make([]int64, 100)
	failover.Timeline[3] = 7
	return append(out, failover)
}

// TestTable: medians over the rounds with their range, sizes as people write them, and each cell's ratio to its limit.
func TestTable(t *testing.T) {
	got := report.Table(figures())
	for _, want := range []string{"105 (100 to 110)", "6405 (6400 to 6410)", "4 KiB", "| B steps raft that writes",
		"B steps, 3 nodes, 64 under way, 4 KiB: 0.5 (0.5 to 0.501) of the rate of raft that writes, 4 times its CPU",
		"G failover, 3 nodes, 1 under way, 4 KiB: longest time without a completion, ms 40 (40 to 40)"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

// TestJSON: the figures of every round come back.
func TestJSON(t *testing.T) {
	var b bytes.Buffer
	var got []suite.Figures
	err := report.JSON(&b, figures())
	if err := errors.Join(err, json.Unmarshal(b.Bytes(), &got)); err != nil || len(got) != 7 || got[1].PerSecond != 6400 || got[6].Timeline[3] != 7 {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestHTML: the page's plots are well-formed, have a point for each cell, show titles as text, and need nothing from
// elsewhere.
func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := report.HTML(&b, figures()); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if n := strings.Count(page, "<svg "); n != 5+6 {
		t.Errorf("the page has %d plots", n)
	}
	if strings.Contains(page, "<of>") || strings.Contains(page, "src=") || strings.Contains(page, "href=") || strings.Contains(page, "NaN") {
		t.Error("the page has an unescaped title, a reference to elsewhere, or no number")
	}
	for _, part := range strings.Split(page, "<svg ")[1:] {
		svg, _, _ := strings.Cut("<svg "+part, "</svg>")
		dec := xml.NewDecoder(strings.NewReader(svg + "</svg>"))
		for {
			_, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
		}
	}
}

// TestVerdicts: a regression is called one.
func TestVerdicts(t *testing.T) {
	got := report.Verdicts("new over old", []suite.Verdict{{Figure: "server CPU per unit", Ratios: []float64{1.1, 1.2}, Median: 1.15, Low: 1.1, Judged: true, Regression: true},
		{Figure: "p50", Ratios: []float64{1}, Median: 1}})
	if !strings.Contains(got, "| server CPU per unit | 1.150 | 1.100 to 1.200 | 1.100 | regression |") || !strings.Contains(got, "shown only") {
		t.Error(got)
	}
}

// TestCourse: each window has its line, in the order in which they ran.
func TestCourse(t *testing.T) {
	got := report.Course([]suite.Figures{
		{Round: 7, Binary: suite.Keeping, PerSecond: 100, Extra: map[string]float64{suite.KeptNow: 500}},
		{Round: 7, Binary: suite.Purging, PerSecond: 90, ServerRSS: 2e8, Extra: map[string]float64{suite.KeptNow: 400, suite.FilesMB: 12}},
	})
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 4 || !strings.Contains(lines[2], suite.Keeping) || !strings.Contains(lines[3], suite.Purging) ||
		!strings.Contains(lines[3], "| 400") || !strings.Contains(lines[3], "| 12 ") || !strings.Contains(lines[3], "| 200 ") {
		t.Error(got)
	}
}
