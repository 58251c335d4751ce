// Command orders processes a book of orders: each one is a durable execution that reserves the goods, takes
// the money, waits for the warehouse, ships, and notifies the customer, or undoes all of that.
//
// It owns a work folder with the files of a simulated outside world. Every order ends as its data says
// (Expect), however often the process is killed and started again. No step whose result was recorded runs
// again. A crash loses the steps that were running: those run again, which the world's files show.
//
// workflow.go is the part to copy: the durable functions. The rest is there to watch them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"perdure/client"
	"perdure/durable"
	"perdure/embed"
	"perdure/examples/internal/cluster"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // it was stopped, or could not continue, or the check found differences
	exitUsage  = 2
)

// options are the command line.
type options struct {
	addrs       []string
	namespace   string
	work        string
	orders      string
	only        int
	concurrency int
	pickDelay   time.Duration
	pickTimeout time.Duration
	latency     time.Duration
	lease       time.Duration
	name        string
	worker      bool
	driver      bool
	fresh       bool
	json        bool
}

func main() {
	o, err := parse(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(exitDone)
	case err != nil:
		os.Exit(exitUsage)
	}
	// The first signal asks for an orderly stop, a second one ends the process at once.
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	os.Exit(o.run(ctx, os.Stdout, os.Stderr))
}

// parse reads the command line. When it returns an error, it has printed the problem or the help.
func parse(args []string, stdout, stderr io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {} // a wrong flag prints its error alone
	addr := flags.String("addr", "", "`addresses` of a cluster, with commas; none: a node of its own, inside this process")
	flags.StringVar(&o.namespace, "namespace", "", "`namespace` of the orders in the cluster (default: the environment's PERDURE_NAMESPACE, or \"default\")")
	flags.StringVar(&o.work, "work", "", "`folder` for the simulated world's files and the node's data (default \"orders-run\", and with --addr \"orders-run-\" and the cluster's id)")
	flags.StringVar(&o.orders, "orders", "", "orders `file` (default: the one that comes with the example)")
	flags.IntVar(&o.only, "only", 0, "only the first `N` orders; 0: all")
	flags.IntVar(&o.concurrency, "concurrency", 64, "how many orders are in progress at once, and how many functions run at once")
	flags.DurationVar(&o.pickDelay, "pick-delay", 200*time.Millisecond, "how long the warehouse takes to pick an order")
	flags.DurationVar(&o.pickTimeout, "pick-timeout", 3*time.Second, "how long an order waits for the warehouse before it calls")
	flags.DurationVar(&o.latency, "latency", 10*time.Millisecond, "how long the outside world takes to answer a step")
	flags.DurationVar(&o.lease, "lease", 3*time.Second, "how long a task is held without a heartbeat, 1s at least")
	flags.StringVar(&o.name, "name", "shop", "this worker's `name` in the world's files; the process id is added")
	flags.BoolVar(&o.worker, "worker", false, "only run the functions of orders that others start at --addr")
	flags.BoolVar(&o.driver, "driver", false, "only start the orders and be the warehouse; workers at --addr run the functions")
	flags.BoolVar(&o.fresh, "fresh", false, "forget the earlier run: remove what it left in the work folder, and start a new one")
	flags.BoolVar(&o.json, "json", false, "print the summary as JSON")
	wrong := func(err error) (options, error) {
		fmt.Fprintf(stderr, "orders: %v\nsee orders --help\n", err)
		return o, err
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, "Usage: orders [flags]\n\nBrings a book of orders to their end, durably. Kill it and start it again: it continues.\n\n")
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return wrong(err)
	}
	if *addr != "" {
		var err error
		if o.addrs, err = cluster.SplitAddrs(*addr); err != nil {
			return wrong(err)
		}
	}
	if text := o.wrong(flags.Args()); text != "" {
		return wrong(errors.New(text))
	}
	return o, nil
}

// wrong describes a problem of the options, or returns "".
func (o options) wrong(rest []string) string {
	switch {
	case len(rest) > 0:
		return fmt.Sprintf("%q: there are only flags", rest[0])
	case o.worker && o.driver:
		return "--worker and --driver: a process is one or the other, or without both, everything"
	case (o.worker || o.driver) && len(o.addrs) == 0:
		return "--worker and --driver need a cluster that they share: --addr"
	case o.fresh && (o.worker || o.driver):
		return "--fresh is for a process that is everything: other processes may have the files open already; take another --work"
	case o.only < 0:
		return fmt.Sprintf("--only %d: a number of orders, or 0 for all", o.only)
	case o.concurrency < 1:
		return fmt.Sprintf("--concurrency %d: at least 1", o.concurrency)
	case o.lease < time.Second:
		return fmt.Sprintf("--lease %v: at least 1s", o.lease)
	case o.pickTimeout <= 0 || o.pickDelay < 0:
		return "--pick-timeout must be positive, --pick-delay not negative"
	case o.latency < 0 || o.latency >= maxCall:
		return fmt.Sprintf("--latency %v: from 0 to under %v, which is what a step is given", o.latency, maxCall)
	case o.name == "" || strings.ContainsAny(o.name, " \t\n"):
		return fmt.Sprintf("--name %q: not one word", o.name)
	}
	return ""
}

// run does everything, in order, and returns the exit code.
func (o options) run(ctx context.Context, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintf(stderr, "orders: %v\n", err)
		return exitFailed
	}
	began := time.Now()

	// 1. The orders.
	book, err := LoadBook(o.orders, o.only)
	if err != nil {
		return fail(err)
	}

	// 2. The cluster that is there already, if one was named. It says which one it is.
	var opts client.Options
	mine := Claim{Namespace: client.DefaultNamespace}
	if len(o.addrs) > 0 {
		if opts, err = o.clientOptions(); err != nil {
			return fail(err)
		}
		if mine.Cluster, mine.Namespace, err = cluster.Which(ctx, opts); err != nil {
			return fail(err)
		}
		mine.Run = newRun()
	} else if o.namespace != "" {
		mine.Namespace = o.namespace
	}

	// 3. The work folder, and in it the log of everything that is not said on the terminal.
	switch {
	case o.work != "":
	case len(o.addrs) > 0:
		o.work = folderOf(mine.Cluster, mine.Namespace)
	default:
		o.work = defaultWork
	}
	if o.fresh {
		if err := removeRun(o.work); err != nil {
			return fail(err)
		}
	}
	if err := os.MkdirAll(o.work, 0o755); err != nil {
		return fail(err)
	}
	logFile, err := openLog(filepath.Join(o.work, logName))
	if err != nil {
		return fail(err)
	}
	defer logFile.Close()
	logTo := io.Writer(logFile)
	if o.worker {
		logTo = io.MultiWriter(logFile, stderr) // it has nothing else to say
	}
	name := fmt.Sprintf("%s-%d", o.name, os.Getpid())
	log := slog.New(slog.NewTextHandler(logTo, nil)).With("process", name)

	// 4. Without a cluster, one node in this process.
	var node *embed.Node
	if len(o.addrs) == 0 {
		if node, err = cluster.Start(ctx, filepath.Join(o.work, dataName), log); err != nil {
			return fail(err)
		}
		defer cluster.Stop(node, log)
		opts.Addrs = []string{node.GRPCAddr()}
	}
	opts.Namespace, opts.Logger = mine.Namespace, log
	c, err := client.Dial(opts)
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	if node != nil {
		if mine.Cluster, err = cluster.ID(ctx, c); err != nil {
			return fail(err)
		}
	}

	// 5. The run: the one of the folder, or a new one.
	run, err := claim(o.work, mine)
	if err != nil {
		return fail(err)
	}
	book.SetRun(run)
	fmt.Fprintf(stderr, "orders: process %d, cluster at %s, work folder %s, orders %s to %s\n", os.Getpid(),
		strings.Join(opts.Addrs, ","), o.work, book.Orders[0].ID(), book.Orders[len(book.Orders)-1].ID())

	// 6. The outside world, and the functions that act on it.
	world, err := OpenWorld(o.work, book.Stock, name, o.latency)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = world.Close() }()
	shop := NewShop(world, o.pickTimeout)

	// 7. The worker and the warehouse. They stop before the node that they are connected to.
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	stopBackground := func() { cancel(errOver); background.Wait() }
	defer stopBackground()
	serve := func(what string, run func(context.Context) error) {
		background.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	if node != nil {
		serve("the node", func(ctx context.Context) error {
			select {
			case <-node.Done():
				return node.Err()
			case <-ctx.Done():
				return nil
			}
		})
	}
	if !o.driver {
		w := newWorker(c, shop, name, o, log)
		serve("the worker", w.Run)
		if o.worker {
			return o.serveUntilStopped(ctx, w, stderr)
		}
	}
	serve("the warehouse", (&Warehouse{client: c, dir: o.work, delay: o.pickDelay, log: log}).Run)

	// 8. The orders.
	progress := &Progress{total: len(book.Orders), steps: world.steps.Load, began: began}
	stopProgress := progress.Show(stderr)
	results, err := Drive(ctx, c, shop.Order, book, o.concurrency, progress)
	stopProgress()
	if err != nil {
		return o.explain(err, progress, stderr)
	}

	// 9. Nothing runs any more: check the outcome.
	stopBackground()
	return o.conclude(book, results, progress, stdout, stderr)
}

// errOver is the cause of a context that ends because the work is done.
var errOver = errors.New("the orders have ended")

func newWorker(c *client.Client, shop *Shop, name string, o options, log *slog.Logger) *durable.Worker {
	w := durable.NewWorker(c, durable.WorkerOptions{Name: name, Concurrency: o.concurrency, Lease: o.lease, Logger: log,
		StopGrace: o.latency + 10*time.Second,
		OnEvent: func(e durable.Event) {
			if e.Kind == durable.EventLost {
				log.Warn("execution lost: it is no longer this worker's", "id", e.ID)
			}
		}})
	w.Register(shop.Order, shop.Shipment)
	return w
}

// serveUntilStopped runs a process that only serves functions, until it is stopped.
func (o options) serveUntilStopped(ctx context.Context, w *durable.Worker, stderr io.Writer) int {
	select {
	case <-w.Ready():
		fmt.Fprintf(stderr, "orders: worker %s is ready; Ctrl-C stops it\n", w.ID())
	case <-ctx.Done():
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		fmt.Fprintf(stderr, "orders: %v\n", err)
		return exitFailed
	}
	return exitDone
}

// explain prints why the orders have not ended.
func (o options) explain(err error, p *Progress, stderr io.Writer) int {
	again := "run the same command again to continue"
	if o.fresh {
		again = "run the same command again without --fresh to continue"
	}
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(stderr, "orders: stopped with %d of %d orders finished; %s\n", p.Finished(), p.total, again)
	default:
		fmt.Fprintf(stderr, "orders: %v\norders: %d of %d orders finished; %s; details are in %s\n",
			err, p.Finished(), p.total, again, filepath.Join(o.work, logName))
	}
	return exitFailed
}

// conclude checks the outcome of the orders and prints it.
func (o options) conclude(book Book, results map[string]Result, p *Progress, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintf(stderr, "orders: %v\n", err)
		return exitFailed
	}
	if err := WriteResults(o.work, book, results); err != nil {
		return fail(err)
	}
	report, err := CheckFiles(o.work, book, results)
	if err != nil {
		return fail(err)
	}
	report.CompareTotals(Expected(book))
	earlier := int(p.earlier.Load())
	summary := Summarize(report, earlier, time.Since(p.began))
	switch {
	case o.json:
		data, err := summary.JSON()
		if err != nil {
			return fail(err)
		}
		_, err = stdout.Write(data)
		if err != nil {
			return fail(err)
		}
	default:
		switch {
		case earlier == len(book.Orders):
			fmt.Fprintf(stdout, "All %d orders had ended in an earlier run; there was nothing to do. --fresh starts over.\n", earlier)
		case earlier > 0:
			fmt.Fprintf(stdout, "%d orders had ended in an earlier run; this one has brought the rest to their end.\n", earlier)
		}
		if err := summary.Print(stdout); err != nil {
			return fail(err)
		}
	}
	if !report.OK() {
		return exitFailed
	}
	return exitDone
}
