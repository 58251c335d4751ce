package report

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"perdure/bench/suite"
)

// course are the figures of one window of a measurement of retention.
var course = []struct {
	name string
	of   func(suite.Figures) float64
}{
	{suite.MachineHours, func(f suite.Figures) float64 { return f.Extra[suite.MachineHours] }},
	{suite.Executed, func(f suite.Figures) float64 { return f.Extra[suite.Executed] }},
	{suite.KeptNow, func(f suite.Figures) float64 { return f.Extra[suite.KeptNow] }},
	{suite.FilesMB, func(f suite.Figures) float64 { return f.Extra[suite.FilesMB] }},
	{"RSS MB", func(f suite.Figures) float64 { return f.ServerRSS / 1e6 }},
	{suite.HeapMB, func(f suite.Figures) float64 { return f.Extra[suite.HeapMB] }},
	{"per second", func(f suite.Figures) float64 { return f.PerSecond }},
	{"p99 ms", func(f suite.Figures) float64 { return f.Latency.P99 }},
	{"CPU ms: servers", func(f suite.Figures) float64 { return f.ServerCPU }},
	{suite.PurgeBehind, func(f suite.Figures) float64 { return f.Extra[suite.PurgeBehind] }},
	{"others %", func(f suite.Figures) float64 { return f.Others }},
}

// Course shows a measurement of retention, a line for each window in the order in which they ran, as Markdown. Files and memory are of
// all nodes.
func Course(figures []suite.Figures) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	head := "| window\t| side\t"
	for _, c := range course {
		head += "| " + c.name + "\t"
	}
	fmt.Fprintln(w, head+"|\n|"+strings.Repeat(" ---\t|", len(course)+2))
	for _, f := range figures {
		fmt.Fprintf(w, "| %d\t| %s\t", f.Round, f.Binary)
		for _, c := range course {
			fmt.Fprintf(w, "| %s\t", number(c.of(f)))
		}
		fmt.Fprintln(w, "|")
	}
	// A tabwriter into a strings.Builder cannot fail.
	_ = w.Flush()
	return b.String()
}
