package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// resultsFile has the result of every order, a line of JSON each, in the order of the book. It is written
// when all have ended.
const resultsFile = "results.jsonl"

// Summary is what a run prints at its end, and what --json prints.
type Summary struct {
	Orders  int            `json:"orders"`
	Shipped int            `json:"shipped"`
	Failed  map[string]int `json:"failed"`
	// Revenue is what was charged and not refunded. All money is in cents, by currency.
	Charged     map[string]int64 `json:"charged"`
	Refunded    map[string]int64 `json:"refunded"`
	Revenue     map[string]int64 `json:"revenue"`
	Emails      int              `json:"emails"`
	Steps       int              `json:"steps"`
	Retries     int              `json:"retries"`
	Repeats     int              `json:"repeats"`
	RerunsAfter int              `json:"rerunsAfterAcknowledgement"`
	Torn        int              `json:"tornLines"`
	AlreadyDone int              `json:"alreadyDone"`
	Seconds     float64          `json:"seconds"`
	Check       string           `json:"check"` // "ok" or "failed"
	Differences []string         `json:"differences"`
}

// Summarize turns a report into a summary. alreadyDone is how many orders had ended before this run.
func Summarize(r Report, alreadyDone int, took time.Duration) Summary {
	s := Summary{Orders: r.Orders, Shipped: r.Shipped, Failed: r.Failed, Charged: r.Charged, Refunded: r.Refunded,
		Revenue: map[string]int64{}, Emails: r.Emails, Steps: r.Steps, Retries: r.Retries, Repeats: len(r.Repeats), RerunsAfter: len(r.Reruns),
		Torn: r.Torn, AlreadyDone: alreadyDone, Seconds: float64(took.Milliseconds()) / 1000, Check: "ok", Differences: r.Differences}
	for currency, cents := range r.Charged {
		s.Revenue[currency] = cents - r.Refunded[currency]
	}
	if !r.OK() {
		s.Check = "failed"
	}
	return s
}

// JSON is the summary as one line of JSON.
func (s Summary) JSON() ([]byte, error) {
	if s.Differences == nil {
		s.Differences = []string{}
	}
	data, err := json.Marshal(s)
	return append(data, '\n'), err
}

// Print writes the summary as a table, with the verdict in its last line.
func (s Summary) Print(w io.Writer) error {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	row := func(name string, value any, note string) { fmt.Fprintf(t, "  %s\t%v\t%s\n", name, value, note) }
	failed := 0
	for _, n := range s.Failed {
		failed += n
	}
	row("orders", s.Orders, "")
	row("shipped", s.Shipped, "")
	row("failed", failed, "")
	for _, reason := range reasonsOf(s.Failed) {
		row("  "+reason, s.Failed[reason], "")
	}
	row("charged", money(s.Charged), "cents")
	row("refunded", money(s.Refunded), "cents")
	row("revenue", money(s.Revenue), "cents")
	row("e-mails", s.Emails, "")
	row("steps run", s.Steps, "each counted once, over all processes of the run")
	row("retries", s.Retries, "the other side could not be reached, and the step was tried again")
	row("repeats", s.Repeats, "ran again: a crash came before the result was recorded")
	row("reruns", s.RerunsAfter, "ran again although the result had been recorded")
	if err := t.Flush(); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	if s.Check == "ok" {
		lines = append(lines, "check: ok")
	} else {
		lines = append(lines, fmt.Sprintf("check: %d differences from what the orders say", len(s.Differences)))
		for i, d := range s.Differences {
			if i == 20 {
				lines = append(lines, fmt.Sprintf("  and %d more", len(s.Differences)-i))
				break
			}
			lines = append(lines, "  "+d)
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// reasonsOf lists the known reasons, then any others.
func reasonsOf(failed map[string]int) []string {
	out := slices.Clone(Reasons)
	for _, reason := range slices.Sorted(maps.Keys(failed)) {
		if !slices.Contains(out, reason) {
			out = append(out, reason)
		}
	}
	return out
}

// money is amounts by currency on one line.
func money(cents map[string]int64) string {
	var out []string
	for _, currency := range slices.Backward(slices.Sorted(maps.Keys(cents))) {
		out = append(out, fmt.Sprintf("%s %d", currency, cents[currency]))
	}
	return strings.Join(out, ", ")
}

// WriteResults writes the results file of a work folder, whole or not at all.
func WriteResults(dir string, book Book, results map[string]Result) error {
	var out bytes.Buffer
	for _, o := range book.Orders {
		line, err := json.Marshal(results[o.ID()])
		if err != nil {
			return err
		}
		out.Write(append(line, '\n'))
	}
	path := filepath.Join(dir, resultsFile)
	if err := os.WriteFile(path+".new", out.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
