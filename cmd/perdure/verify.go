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
	"perdure/fsm/machine"
)

// progressEvery is how often a long verification tells people on stderr how far it is.
const progressEvery = 2 * time.Second

// verifyOptions are the flags of verify.
type verifyOptions struct {
	data       string
	namespaces []string
	parallel   int
	// compareWithin bounds the comparison of a cluster's replicas.
	compareWithin time.Duration
}

func (a *app) verifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Judge a cluster, or a stopped node's data, by every rule there is",
		Long: `Judge what a cluster or a stopped node holds by the rules of the journals, of the
recovery protocol and of the server itself, and name every violation: its rule,
the id, and the journal entry if it is about one. Nothing is changed.

Without --data it asks a live cluster: every node judges each of its replicas on a
snapshot of its state, one after the other, while it goes on to serve. The token, if
tokens are asked for, must be good for all namespaces; with another one this part is
left out, and said to be. If nothing is wrong so far, it reads the journal of every
execution of the namespaces given as clients see it, judges it, and compares status
and result with its end. Executions that go on meanwhile are judged as far as they
were when described. Then it compares the replicas of every partition: their
checksums, at an index that all of them have come to. What was judged is shown before
that. A node that cannot be reached is not waited for; one that lags is, for
--compare-within.

With --data it reads the directory of a node that is stopped, all partitions and all
namespaces.

A state is judged by all rules: its journals, promises, tasks, graph runs, callbacks,
deadlines, queues, listings, messages and stored replies, each by itself; that every
value that stands in two places is the same in both; and whether every open execution
has something that will wake it. If the node was killed, the end of
its log is applied to the states first, in memory, from a copy of the log in the
system's folder for temporary files.

Exit codes: 0 everything holds, 1 there are violations, or a store is damaged,
2 bad usage, 3 no such directory, 5 no node answers, not every replica could be
compared in time, or a running process uses the directory.`,
		Example: `  perdure verify
  perdure verify --namespace default,acme --json
  perdure verify --data ./perdure-data`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.data, "data", "", "data `directory` of a stopped node to judge, instead of a live cluster")
	flags.StringSliceVar(&o.namespaces, "namespace", nil, "`name` of a tenant to verify; repeat it, or separate by commas, to verify several (default "+client.DefaultNamespace+", or "+envNamespace+")")
	flags.IntVar(&o.parallel, "parallel", 8, "how many executions (with --data: partitions) are judged at once")
	flags.DurationVar(&o.compareWithin, "compare-within", 30*time.Second, "how long to look for an index at which all replicas of a partition can be compared")
	if err := cmd.MarkFlagDirname("data"); err != nil {
		panic(err) // only if the flag does not exist
	}
	cmd.RunE = do(func(ctx context.Context, _ []string) error {
		offline := cmd.Flags().Changed("data")
		switch {
		case o.parallel < 1:
			return usagef("--parallel %d: must be at least 1", o.parallel)
		case o.compareWithin <= 0:
			return usagef("--compare-within %v: must be more than 0", o.compareWithin)
		case offline && o.data == "":
			return usagef("--data: names no directory")
		case offline && (len(o.namespaces) > 0 || a.namespace != "" || len(a.addrs) > 0):
			return usagef("--data judges everything in a directory: --addr and --namespace are for a live cluster")
		case offline:
			return a.verifyData(ctx, o)
		}
		return a.verifyLive(ctx, o)
	})
	return cmd
}

// finding is a violation with the partition it was found in; -1 where that is not known.
type finding struct {
	machine.Violation
	partition int
	// nodes are those whose replicas have it; none if it was not found in a replica's state.
	nodes []string
}

// verdict is what a verification has looked at, in the order in which it is shown, and what it found.
type verdict struct {
	counts   []count
	findings []finding
	// replicas is how the replicas compare; nil of a directory, which has one of each.
	replicas *replicaReport
	// waited is how long their comparison might take.
	waited time.Duration
	// audits is what the nodes found in their replicas; nil of a directory.
	audits *auditReport
}

// count is one number of a verdict: its name in JSON, and for people.
type count struct {
	key   string
	value any
}

// violationsError says that a verification has found something.
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

// err is nil if all is good, a violationsError, or a notComparedError.
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
	if err := a.tellJudged(v); err != nil {
		return err
	}
	return a.tellEnd(v)
}

// tellJudged shows people what was looked at and what was found.
func (a *app) tellJudged(v verdict) error {
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

// tellEnd tells people that all is good, or returns what is not.
func (a *app) tellEnd(v verdict) error {
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

// progress tells people how far a verification is, now and then. It is safe for concurrent use.
type progress struct {
	a    *app
	mu   sync.Mutex
	last time.Time
}

func (a *app) newProgress() *progress { return &progress{a: a, last: a.now()} }

// at tells how far it is, if it is time to.
func (p *progress) at(say func() string) {
	if p.a.json {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.a.now(); now.Sub(p.last) >= progressEvery {
		p.last = now
		fmt.Fprintf(p.a.stderr, "verifying: %s\n", say())
	}
}
