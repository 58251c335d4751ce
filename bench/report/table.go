// Package report shows the figures of measurements to people and programs: a table, JSON, and a page with plots.
//
// It owns their form alone. It reads figures and decides nothing, and what it writes depends on nothing but
// them. The page needs nothing from elsewhere: its plots are drawn here.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"perdure/bench/suite"
)

// Line is one measurement, for following a run.
func Line(f suite.Figures) string {
	return fmt.Sprintf("%s %s, %d nodes, %d under way, %s, round %d: %.4g %s/s, p50 %.3g ms, p99 %.3g ms", f.Letter, f.Workload,
		f.Nodes, f.Concurrency, Bytes(f.Payload), f.Round, f.PerSecond, f.Unit, f.Latency.P50, f.Latency.P99)
}

// JSON writes the figures of every round.
func JSON(w io.Writer, figures []suite.Figures) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(figures)
}

// Row is all rounds of one cell.
type Row struct {
	suite.Figures // of the first round: what the cell is
	Rounds        []suite.Figures
}

// Rows groups rounds by cell, in the order of their first rounds.
func Rows(figures []suite.Figures) []*Row {
	type key struct {
		workload, binary            string
		nodes, concurrency, payload int
	}
	var out []*Row
	at := map[key]*Row{}
	for _, f := range figures {
		k := key{f.Workload, f.Binary, f.Nodes, f.Concurrency, f.Payload}
		r := at[k]
		if r == nil {
			r = &Row{Figures: f}
			at[k], out = r, append(out, r)
		}
		r.Rounds = append(r.Rounds, f)
	}
	return out
}

// Median is the median of a figure over the rounds.
func (r *Row) Median(of func(suite.Figures) float64) float64 {
	_, median, _ := r.spread(of)
	return median
}

func (r *Row) spread(of func(suite.Figures) float64) (low, median, high float64) {
	var all []float64
	for _, f := range r.Rounds {
		all = append(all, of(f))
	}
	return suite.Spread(all)
}

// column is a figure of the table.
type column struct {
	name   string
	of     func(suite.Figures) float64
	spread bool // with its range over the rounds
}

var columns = []column{
	{"per second", func(f suite.Figures) float64 { return f.PerSecond }, true},
	{"p50 ms", func(f suite.Figures) float64 { return f.Latency.P50 }, false},
	{"p99 ms", func(f suite.Figures) float64 { return f.Latency.P99 }, false},
	{"CPU ms: servers", func(f suite.Figures) float64 { return f.ServerCPU }, true},
	{"worker", func(f suite.Figures) float64 { return f.WorkerCPU }, false},
	{"client", func(f suite.Figures) float64 { return f.ClientCPU }, false},
	{"commands", func(f suite.Figures) float64 { return f.Commands }, false},
	{"entries", func(f suite.Figures) float64 { return f.Entries }, false},
	{"syncs", func(f suite.Figures) float64 { return f.Syncs }, false},
	{"disk KB", func(f suite.Figures) float64 { return f.DiskBytes / 1000 }, false},
	{"allocations", func(f suite.Figures) float64 { return f.Allocations }, false},
	{"RSS MB", func(f suite.Figures) float64 { return f.ServerRSS / 1e6 }, false},
	{"others %", func(f suite.Figures) float64 { return f.Others }, false},
}

// Table is the medians of all cells, as Markdown. All but the rate, the latencies, the memory and the last
// column is per unit: per execution, or whatever the workload counts.
func Table(figures []suite.Figures) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, "\t| ")) }
	rows := Rows(figures)
	head, all := tableCells(rows)
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	var notes []string
	for i, r := range rows {
		line(all[i])
		notes = append(notes, r.notes()...)
	}
	notes = append(notes, limits(rows)...)
	// A tabwriter into a strings.Builder cannot fail.
	_ = w.Flush()
	if len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, "\n") + "\n")
	}
	return b.String()
}

// tableCells is the table's head and its rows.
func tableCells(rows []*Row) (head []string, all [][]string) {
	head = []string{"workload", "nodes", "under way", "payload"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	for _, r := range rows {
		cells := []string{r.name(), fmt.Sprint(r.Nodes), fmt.Sprint(r.Concurrency), Bytes(r.Payload)}
		for _, c := range columns {
			low, median, high := r.spread(c.of)
			text := number(median)
			if c.spread && len(r.Rounds) > 1 {
				text += fmt.Sprintf(" (%s to %s)", number(low), number(high))
			}
			cells = append(cells, text)
		}
		all = append(all, cells)
	}
	return head, all
}

func (r *Row) name() string {
	name := r.Letter + " " + r.Workload
	if r.Rate > 0 {
		name += fmt.Sprintf(" at %g/s", r.Rate)
	}
	return strings.TrimSpace(name + " " + r.Binary)
}

// notes are the figures that only this workload has.
func (r *Row) notes() []string {
	var out []string
	add := func(name string, of func(suite.Figures) float64) {
		low, median, high := r.spread(of)
		out = append(out, fmt.Sprintf("%s, %d nodes, %d under way, %s: %s %s (%s to %s)", r.name(), r.Nodes, r.Concurrency, Bytes(r.Payload),
			name, number(median), number(low), number(high)))
	}
	if r.OutageMs > 0 {
		add("longest time without a completion, ms", func(f suite.Figures) float64 { return f.OutageMs })
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.Extra), cmp.Compare[string]) {
		add(name, func(f suite.Figures) float64 { return f.Extra[name] })
	}
	return out
}

// limits are the ratios of each cell to its limits, round by round.
func limits(rows []*Row) []string {
	var out []string
	for _, limit := range rows {
		if limit.Binary != suite.Counting && limit.Binary != suite.Writing {
			continue
		}
		i := slices.IndexFunc(rows, func(r *Row) bool {
			return r.Binary == "" && r.Workload == limit.Workload && r.Nodes == limit.Nodes && r.Concurrency == limit.Concurrency && r.Payload == limit.Payload
		})
		if i < 0 {
			continue
		}
		var rates, costs []float64
		for round, f := range rows[i].Rounds[:min(len(rows[i].Rounds), len(limit.Rounds))] {
			if g := limit.Rounds[round]; g.PerSecond > 0 && g.ServerCPU > 0 {
				rates, costs = append(rates, f.PerSecond/g.PerSecond), append(costs, f.ServerCPU/g.ServerCPU)
			}
		}
		low, rate, high := suite.Spread(rates)
		_, cost, _ := suite.Spread(costs)
		out = append(out, fmt.Sprintf("%s, %d nodes, %d under way, %s: %s (%s to %s) of the rate of %s, %s times its CPU", rows[i].name(), limit.Nodes,
			limit.Concurrency, Bytes(limit.Payload), number(rate), number(low), number(high), limit.Binary, number(cost)))
	}
	return out
}

// number shows three digits, more of a large number.
func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Bytes shows a size.
func Bytes(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
