// Command bench measures clusters: how much work they do in a second, how long it takes, and what it costs.
//
// It starts the clusters, workers and clients itself, as processes in a temporary folder, and ends them.
// Every run ends by itself. README.md says how to read the figures. It exits with 1 when a result was wrong
// or the run could not be made, with 2 after wrong usage, and with 3 when a comparison found a regression.
//
//	go run ./bench                                     # three recorded steps on three nodes
//	go run ./bench --workloads all --nodes 1,3
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"perdure/bench/cluster"
	"perdure/bench/report"
	"perdure/bench/role"
	"perdure/bench/sdk"
	"perdure/bench/suite"
	"perdure/bench/workload"
	"perdure/internal/overlay"
	"perdure/internal/resonatesdk"
)

// Exit codes.
const exitOK, exitFailed, exitUsage, exitRegression = 0, 1, 2, 3

func main() {
	if role.Asked(os.Args) {
		os.Exit(role.Main(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settings are the flags.
type settings struct {
	workloads, nodes, concurrency, payload string
	json, html, binary, module             string
	commit, stored                         string
	plant, offend                          float64
	retained                               int64
	short                                  bool
	options                                suite.Options
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var s settings
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&s.workloads, "workloads", "steps", "workloads by name or letter, comma separated, or all")
	set.StringVar(&s.nodes, "nodes", "3", "sizes of clusters, comma separated: 1, 3, 5, 7")
	set.StringVar(&s.concurrency, "concurrency", "64", "operations under way at once, comma separated")
	set.StringVar(&s.payload, "payload", "64", "sizes of payloads, comma separated, such as 64,4KiB,256KiB")
	set.StringVar(&s.json, "json", "", "file for the figures of every round")
	set.StringVar(&s.html, "html", "", "file for a page with plots")
	set.StringVar(&s.binary, "binary", "", "server to measure; built from the sources by default. With --retained what jepsen/run build makes")
	set.StringVar(&s.module, "module", ".", "folder of the sources")
	o := &s.options
	set.StringVar(&o.Load, "load", "", "program of the worker and the client; this one by default")
	set.DurationVar(&o.Duration, "duration", 3*time.Second, "window of a measurement")
	set.DurationVar(&o.Warmup, "warmup", time.Second, "time before the window")
	set.Int64Var(&o.Count, "count", 0, "operations of a measurement instead of a window")
	set.Float64Var(&o.Rate, "rate", 0, "operations that begin per second; 0 begins one when another has ended")
	set.IntVar(&o.Rounds, "rounds", 1, "how often each measurement is repeated, interleaved")
	set.Int64Var(&o.Sleepers, "sleepers", 10_000, "sleepers of the workload sleepers")
	set.DurationVar(&o.Spread, "spread", 0, "time over which sleepers are due; 0 is one instant")
	set.DurationVar(&o.Lead, "lead", 0, "time in which sleepers are started; 0 is 2 s and 1 s for each 400")
	set.BoolVar(&o.Filled, "filled", false, "store the sleepers in the data directory of one node instead of starting them")
	set.BoolVar(&o.Restart, "restart", false, "kill a node while all sleepers sleep, and time its restart")
	set.StringVar(&s.stored, "stored", "", "numbers of executions that nodes store before, comma separated, such as 10000,3000000")
	set.Int64Var(&s.retained, "retained", 0, "executions that end over hours of the nodes' time, with an hour of retention")
	set.Float64Var(&s.offend, "offend", 0, "measure beside namespaces that offer so many times their quotas")
	set.IntVar(&o.Partitions, "partitions", 0, "partitions of a cluster; 0 is the server's default")
	set.StringVar(&o.Parent, "dir", "", "folder for the data, on the disk to be measured")
	set.Func("node-arg", "argument for every node; repeatable", func(v string) error { o.Args = append(o.Args, v); return nil })
	set.BoolVar(&o.Baseline, "baseline", false, "measure bare Raft after each cell, as the limit")
	set.StringVar(&s.commit, "compare", "", "commit to compare with; a regression exits with 3")
	set.Float64Var(&s.plant, "plant", 0, "compare with the present server made so many percent slower")
	set.BoolVar(&s.short, "short", false, "with --compare or --plant: two minutes, on one node")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitUsage
	}
	if s.short {
		s.shorten(set)
	}
	cells, skipped, err := s.cells()
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", set.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	for _, c := range skipped {
		fmt.Fprintf(stderr, "bench: left out, too many bytes under way: %v\n", c)
	}
	err = s.measure(ctx, cells, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
	}
	switch {
	case errors.Is(err, errRegression):
		return exitRegression
	case err != nil:
		return exitFailed
	}
	return exitOK
}

// shorten sets the short form of a comparison, but for flags that were given.
func (s *settings) shorten(set *flag.FlagSet) {
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"nodes": "1", "rounds": "8", "warmup": "500ms", "duration": "1500ms"} { //lint:sorted each sets another flag
		if !given[name] {
			_ = set.Set(name, value) // the values are valid
		}
	}
}

// measure runs the cells and reports their figures, also after an error those that there are.
func (s *settings) measure(ctx context.Context, cells []suite.Cell, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp(s.options.Parent, "perdure-bench-build-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if cells, err = s.installSDK(ctx, cells, dir, stderr); err != nil || len(cells) == 0 {
		return err
	}
	if s.options.Node = s.binary; s.binary == "" {
		s.options.Node = filepath.Join(dir, "node")
		var patches []overlay.Patch
		if s.retained > 0 {
			patches = overlay.Faults()
		}
		if err := cluster.Build(ctx, s.module, cluster.NodeCommand, s.options.Node, patches...); err != nil {
			return err
		}
	}
	if s.options.Load == "" {
		if s.options.Load, err = os.Executable(); err != nil {
			return err
		}
	}
	s.options.Progress = func(f suite.Figures) { fmt.Fprintln(stderr, report.Line(f)) }
	if s.commit != "" || s.plant > 0 {
		return s.compare(ctx, cells, dir, stdout)
	}
	switch {
	case s.stored != "":
		return s.measureStored(ctx, cells, stdout)
	case s.retained > 0:
		return s.measureRetained(ctx, cells, stdout)
	case s.offend > 0:
		return s.measureOffended(ctx, cells, stdout)
	}
	figures, err := suite.Run(ctx, s.options, cells)
	return errors.Join(err, s.report(figures, stdout))
}

// installSDK installs Resonate's SDK if a cell needs it. On a machine without it, those cells are left out.
func (s *settings) installSDK(ctx context.Context, cells []suite.Cell, dir string, stderr io.Writer) (rest []suite.Cell, err error) {
	rest = slices.DeleteFunc(slices.Clone(cells), func(c suite.Cell) bool { return c.Workload.SDK })
	if len(rest) == len(cells) {
		return cells, nil
	}
	s.options.SDK = filepath.Join(dir, "sdk")
	if err := os.Mkdir(s.options.SDK, 0o755); err != nil {
		return nil, err
	}
	err = sdk.Install(ctx, s.options.SDK)
	if errors.Is(err, resonatesdk.ErrUnavailable) {
		fmt.Fprintf(stderr, "bench: left out, %d measurements of Resonate's SDK: %v\n", len(cells)-len(rest), err)
		return rest, nil
	}
	return cells, err
}

// measureStored measures one cell on nodes that store more and more executions.
func (s *settings) measureStored(ctx context.Context, cells []suite.Cell, stdout io.Writer) error {
	sizes, err := numbers("stored", s.stored)
	if err == nil && len(cells) != 1 {
		err = fmt.Errorf("stored executions are measured with one cell, not with %d", len(cells))
	}
	if err != nil {
		return err
	}
	var all []int64
	for _, n := range sizes {
		all = append(all, int64(n))
	}
	figures, err := suite.Stored(ctx, s.options, cells[0], all)
	return errors.Join(err, s.report(figures, stdout))
}

func (s *settings) report(figures []suite.Figures, stdout io.Writer) error {
	_, err := io.WriteString(stdout, report.Table(figures))
	if s.json != "" {
		err = errors.Join(err, writeFile(s.json, func(w io.Writer) error { return report.JSON(w, figures) }))
	}
	if s.html != "" {
		err = errors.Join(err, writeFile(s.html, func(w io.Writer) error { return report.HTML(w, figures) }))
	}
	return err
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// cells are all combinations, and those that are left out.
func (s *settings) cells() (cells, skipped []suite.Cell, err error) {
	workloads, err := workload.Find(s.workloads)
	if err != nil {
		return nil, nil, err
	}
	nodes, err1 := numbers("nodes", s.nodes)
	concurrency, err2 := numbers("concurrency", s.concurrency)
	payload, err3 := numbers("payload", s.payload)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, err
	}
	for _, n := range nodes {
		for _, w := range workloads {
			for _, p := range payload {
				for _, c := range concurrency {
					cell := suite.Cell{Workload: w, Nodes: n, Concurrency: c, Payload: p}
					if cell.TooLarge() {
						skipped = append(skipped, cell)
					} else {
						cells = append(cells, cell)
					}
				}
			}
		}
	}
	return cells, skipped, nil
}

// numbers parses a list of positive numbers, each with KiB or MiB behind it or not.
func numbers(what, list string) ([]int, error) {
	var out []int
	for text := range strings.SplitSeq(list, ",") {
		digits, unit := text, 1
		for suffix, u := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} { //lint:sorted at most one suffix fits
			if d, ok := strings.CutSuffix(text, suffix); ok {
				digits, unit = d, u
			}
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > 1<<30/unit {
			return nil, fmt.Errorf("--%s %s: %q is no number from 1", what, list, text)
		}
		out = append(out, n*unit)
	}
	return out, nil
}
