package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"perdure/client"
	"perdure/fsm/audit"
)

// progressEvery is the interval of the progress lines of a long verification on stderr.
const progressEvery = 2 * time.Second

// verifyOptions are the flags of verify.
type verifyOptions struct {
	data       string
	backup     string
	namespaces []string
	parallel   int
	// compareWithin bounds the comparison of a cluster's replicas.
	compareWithin time.Duration
}

func (a *app) verifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check a cluster, a data directory or a backup by all rules",
		Long: `Check the state of a cluster, of a stopped node or of a backup against the rules of
journals, the recovery protocol and the server. Every violation is named by rule, id and journal
entry. Nothing is changed.

Without --data and --backup the command checks a live cluster, in three parts:
1. Every node audits each of its replicas on a snapshot, one after the other, while it
   serves. This needs a token for all namespaces; with another token the part is
   skipped, and the output says so.
2. If the audits found nothing, the command reads the journal of every execution in
   the given namespaces, as clients see it, checks it, and compares its end with the
   execution's status and result.
3. The command compares the checksums of each partition's replicas at a common index.
   It waits up to --compare-within for replicas that lag, and not for unreachable ones.

With --data the command reads the directory of a stopped node: all partitions and
namespaces. If the node was killed, the end of its log is first applied to the states
in memory, from a copy of the log in the system's temporary folder.

With --backup the command reads a backup, the newest at the URL or the one that is named:
first every byte, then each partition's state, in the system's temporary folder, and that
the states are of one moment. "perdure backup --help" says what a URL is.

An audit checks every journal, promise, task, graph run, callback, deadline, queue,
listing, message and stored reply; that values stored twice are equal; and that every
open execution has a wake source.

Exit codes: 0 no violations, 1 violations or a damaged store, 2 bad usage, 3 no such
directory or backup, 5 no node answers, a replica could not be compared in time, or a running
process uses the directory.`,
		Example: `  perdure verify
  perdure verify --namespace default,acme --json
  perdure verify --data ./perdure-data
  perdure verify --backup s3://backups/perdure`,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.data, "data", "", "data `directory` of a stopped node")
	flags.StringVar(&o.backup, "backup", "", "`URL` of backups; a name may follow (default: the newest)")
	flags.StringSliceVar(&o.namespaces, "namespace", nil, "`names` of namespaces, with commas ("+envNamespace+"; \""+client.DefaultNamespace+"\" if missing)")
	flags.IntVar(&o.parallel, "parallel", 8, "executions (otherwise: partitions) checked at once")
	flags.DurationVar(&o.compareWithin, "compare-within", 30*time.Second, "time to find a common index of all replicas")
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // only if the flag does not exist
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if most := min(1, len(o.backup)); len(args) > most {
			return usagef("unexpected argument %q", args[most])
		}
		return nil
	}
	cmd.RunE = do(func(ctx context.Context, args []string) error {
		offline, backedUp := cmd.Flags().Changed("data"), cmd.Flags().Changed("backup")
		switch {
		case o.parallel < 1:
			return usagef("--parallel %d: must be at least 1", o.parallel)
		case o.compareWithin <= 0:
			return usagef("--compare-within %v: must be more than 0", o.compareWithin)
		case offline && o.data == "":
			return usagef("--data: names no directory")
		case offline && backedUp:
			return usagef("--data and --backup exclude each other")
		case backedUp && (len(o.namespaces) > 0 || a.namespace != "" || len(a.addrs) > 0):
			return usagef("--backup checks everything in a backup: --addr and --namespace are for a live cluster")
		case backedUp:
			return a.verifyBackup(ctx, o.backup, args, o.parallel)
		case offline && (len(o.namespaces) > 0 || a.namespace != "" || len(a.addrs) > 0):
			return usagef("--data checks everything in a directory: --addr and --namespace are for a live cluster")
		case offline:
			return a.verifyData(ctx, o)
		}
		return a.verifyLive(ctx, o)
	})
	return cmd
}

// finding is a violation with the partition it was found in; -1 where that is not known.
type finding struct {
	audit.Violation
	partition int
	// nodes are those whose replicas have it; none if it was not found in a replica's state.
	nodes []string
}

// verdict lists the checked objects of a verification, in display order, and the violations it found.
type verdict struct {
	counts   []count
	findings []finding
	// replicas is how the replicas compare; nil of a directory, which has one of each.
	replicas *replicaReport
	// waited is the bound of their comparison.
	waited time.Duration
	// audits are the nodes' findings in their replicas; nil of a directory.
	audits *auditReport
}

// count is one number of a verdict: its name in JSON, and for people.
type count struct {
	key   string
	value any
}

// violationsError says that a verification found violations.
type violationsError struct{ n int }

func (e *violationsError) Error() string {
	if e.n == 1 {
		return "1 violation: something is not as the rules say it must be"
	}
	return fmt.Sprintf("%d violations: something is not as the rules say it must be", e.n)
}

// sort puts the findings in the order in which they are shown.
func (v verdict) sort() {
	slices.SortStableFunc(v.findings, func(x, y finding) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.ID, y.ID), cmp.Compare(x.partition, y.partition))
	})
}

// err is nil without violations, a violationsError, or a notComparedError.
func (v verdict) err() error {
	if n := len(v.findings); n > 0 {
		return &violationsError{n}
	}
	if v.audits != nil && len(v.audits.failed) > 0 {
		return &notAuditedError{v.audits.failed}
	}
	if r := v.replicas; r != nil && r.known && (len(r.verdicts) == 0 || len(r.incomplete()) > 0) {
		return &notComparedError{r.incomplete(), r.away, v.waited}
	}
	return nil
}

// deliver prints a whole verdict and returns its error.
func (a *app) deliver(v verdict) error {
	v.sort()
	if a.json {
		err := v.err()
		out := object{{"ok", err == nil}}
		for _, c := range v.counts {
			out = append(out, member(c))
		}
		if v.audits != nil {
			out = append(out, member{"audits", v.audits.value()})
		}
		if v.replicas != nil {
			out = append(out, member{"replicas", v.replicas.value()})
		}
		items := make([]any, len(v.findings))
		for i, f := range v.findings {
			items[i] = findingObject(f)
		}
		if printErr := a.printJSON(append(out, member{"violations", items})); printErr != nil {
			return printErr
		}
		return err
	}
	if err := a.printChecked(v); err != nil {
		return err
	}
	return a.printEnd(v)
}

// printChecked prints what was checked and what was found.
func (a *app) printChecked(v verdict) error {
	v.sort()
	w := a.table()
	for _, c := range v.counts {
		fmt.Fprintf(w, "%s\t%s\n", c.key, countText(c.value))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, f := range v.findings {
		fmt.Fprintln(a.out, findingText(f))
	}
	return nil
}

// printEnd prints that there is no violation, or returns the violations.
func (a *app) printEnd(v verdict) error {
	err := v.err()
	if err == nil {
		fmt.Fprintln(a.out, "ok")
	}
	return err
}

// countText shows a number, or a list of names.
func countText(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	var names []string
	for _, name := range list {
		names = append(names, printable(fmt.Sprint(name)))
	}
	return dash(strings.Join(names, ", "))
}

func findingObject(f finding) object {
	out := object{{"rule", f.Rule}, {"namespace", f.Namespace}, {"id", f.ID}}
	if f.HasSeq {
		out = append(out, member{"seq", f.Seq})
	}
	if f.partition >= 0 {
		out = append(out, member{"partition", f.partition})
	}
	if len(f.nodes) > 0 {
		out = append(out, member{"nodes", texts(f.nodes)})
	}
	return append(out, member{"detail", f.Detail})
}

// findingText is a violation in one line: rule, id, entry, detail, and where.
func findingText(f finding) string {
	var b strings.Builder
	b.WriteString("violation: " + f.Rule)
	if f.ID != "" {
		b.WriteString(": " + printable(f.ID))
	}
	if f.HasSeq {
		fmt.Fprintf(&b, ", entry %d", f.Seq)
	}
	b.WriteString(": " + printable(f.Detail))
	var where []string
	if f.Namespace != "" {
		where = append(where, "namespace "+printable(f.Namespace))
	}
	if f.partition >= 0 {
		where = append(where, fmt.Sprintf("partition %d", f.partition))
	}
	if len(f.nodes) > 0 {
		where = append(where, "on "+listText(f.nodes))
	}
	if len(where) > 0 {
		b.WriteString(" (" + strings.Join(where, ", ") + ")")
	}
	return b.String()
}

// names makes a list of names a count.
func names(list []string) []any {
	out := make([]any, len(list))
	for i, name := range list {
		out[i] = name
	}
	return out
}

// progress prints how far a long command is, at most every progressEvery. It is safe for concurrent use.
type progress struct {
	a *app
	// doing is the first word of each line; "" for verifying.
	doing string
	mu    sync.Mutex
	last  time.Time
}

func (a *app) newProgress() *progress { return &progress{a: a, last: a.now()} }

// at prints the progress if progressEvery has passed.
func (p *progress) at(say func() string) {
	if p.a.json {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.a.now(); now.Sub(p.last) >= progressEvery {
		p.last = now
		fmt.Fprintf(p.a.stderr, "%s: %s\n", cmp.Or(p.doing, "verifying"), say())
	}
}
