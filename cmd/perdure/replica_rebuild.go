package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// rebuildEvery is the interval at which the progress of a rebuild is read.
const rebuildEvery = time.Second

// shortWait is a wait that may be over before any node was asked.
const shortWait = time.Second

// seenWithin bounds the search for a rebuild that outlasts --wait.
const seenWithin = 3 * time.Second

func (a *app) replicaRebuildCommand() *cobra.Command {
	var (
		node      string
		partition uint32
		wait      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Rebuild a replica from the other replicas",
		Long: `Rebuild a node's replica of a partition from the other replicas, after it halted
because its store is damaged or its state differs. Meanwhile the node serves its
other partitions, and the other nodes serve this one.

The files of the replaced replica are quarantined in the node's data directory, as
kept-PARTITION-TIME, for inspection. "perdure replica forget-quarantined" deletes them.

The command waits until the replica has caught up and shows its progress. When --wait
ends first, the rebuild continues; the same command waits for it again. If a rebuild
ended less than a minute ago, the command reports that rebuild and starts none.

Exit codes: 0 done, 2 bad usage, 3 no such partition or node, 4 refused, 5 not
done in time, or unavailable (retry).`,
		Example: `  perdure replica rebuild --node n3 --partition 2
  perdure replica rebuild --node n3 --partition 2 --wait 1h --json`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.StringVar(&node, "node", "", "`name` of the node (required)")
	flags.Uint32Var(&partition, "partition", 0, "`number` of the partition (required)")
	flags.DurationVar(&wait, "wait", 10*time.Minute, "time to wait until the replica has caught up")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, _ []string) error {
		switch {
		case node == "":
			return usagef("--node is missing: whose replica?")
		case !flags.Changed("partition"):
			return usagef("--partition is missing: the replica of which one?")
		case wait <= 0:
			return usagef("--wait %v: must be more than 0", wait)
		}
		return a.rebuild(ctx, c, node, partition, wait)
	})
	return cmd
}

// rebuild asks for a rebuild, shows its progress, and waits for its end.
func (a *app) rebuild(ctx context.Context, c *client.Client, node string, partition uint32, wait time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ended := make(chan struct{})
	var done client.Rebuilt
	var err error
	began := time.Now()
	go func() {
		defer close(ended)
		done, err = c.RebuildReplica(waiting, node, partition)
	}()
	a.followRebuild(waiting, c, node, partition, ended)
	<-ended
	what := fmt.Sprintf("partition %d on %s", partition, node)
	switch {
	case err != nil && ctx.Err() == nil && waiting.Err() != nil && client.Unavailable(err):
		unknown := errors.Is(err, client.ErrOutcomeUnknown)
		_, refused := api.FromStatus(err)
		switch {
		case (unknown || refused) && rebuildSeen(ctx, c, node, partition):
			return &hintedError{&notFinishedError{what: "the rebuild of", id: what, waited: wait},
				"the rebuild continues; perdure cluster status shows it, and the same command waits for it again"}
		case unknown:
			return &hintedError{&notFinishedError{what: "the rebuild of", id: what, waited: wait},
				"no answer came in this time: it may not have begun, or be done already; repeat the command, with a longer --wait"}
		case !refused && wait < shortWait && strings.Contains(lastCause(err), context.DeadlineExceeded.Error()):
			return &hintedError{&withinError{err, wait}, "nothing was begun; repeat the command, with a longer --wait"}
		}
		return &withinError{err, wait}
	case err != nil:
		return hintSteered(err)
	}
	// A rebuild by an earlier attempt of this very command counts as done now.
	before := done.Before != 0 && done.Before > time.Since(began)
	if !before {
		done.Before = 0
	}
	if a.json {
		return a.printJSON(object{{"node_id", node}, {"partition", uint64(partition)}, {"applied", done.Applied},
			{"done_ms_ago", uint64(done.Before.Milliseconds())}})
	}
	if before {
		fmt.Fprintf(a.out, "nothing to do: partition %d on %s was rebuilt %s ago and has caught up: %d entries applied\n",
			partition, printable(node), span(done.Before), done.Applied)
	} else {
		fmt.Fprintf(a.out, "partition %d on %s is rebuilt and has caught up: %d entries applied\n", partition, printable(node), done.Applied)
	}
	fmt.Fprintf(a.out, "its former files are quarantined in the data directory of %s, as kept-%04d-TIME; to delete them:\n  %s\n",
		printable(node), partition, forgetQuarantinedLine(node, partition))
	return nil
}

// followRebuild prints the progress of a rebuild until it ends.
func (a *app) followRebuild(ctx context.Context, c *client.Client, node string, partition uint32, ended <-chan struct{}) {
	if a.json {
		return
	}
	ticker := time.NewTicker(rebuildEvery)
	defer ticker.Stop()
	for said := ""; ; {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
		s, err := c.ClusterStatus(ctx)
		if err != nil {
			continue // the rebuild call returns the error
		}
		if now := rebuildText(s, node, partition); now != said {
			said = now
			fmt.Fprintln(a.stderr, now)
		}
	}
}

// rebuildSeen reports whether the cluster status shows within seenWithin that a replica is being rebuilt.
func rebuildSeen(ctx context.Context, c *client.Client, node string, partition uint32) bool {
	ctx, cancel := context.WithTimeout(ctx, seenWithin)
	defer cancel()
	s, err := c.ClusterStatus(ctx)
	if err != nil {
		return false
	}
	for _, p := range s.GetPartitions() {
		for _, r := range p.GetReplicas() {
			if p.GetPartition() == partition && r.GetNodeId() == node {
				return r.GetState() == replicaRebuilding
			}
		}
	}
	return false
}

// rebuildText describes a replica's progress.
func rebuildText(s *perdurev1.ClusterStatus, node string, partition uint32) string {
	text := fmt.Sprintf("partition %d on %s", partition, printable(node))
	for _, p := range s.GetPartitions() {
		if p.GetPartition() != partition {
			continue
		}
		for _, r := range p.GetReplicas() {
			if r.GetNodeId() == node {
				return fmt.Sprintf("%s: %s, %d entries applied, %d behind", text, orDash(r.GetState()), r.GetApplied(), r.GetLag())
			}
		}
	}
	return text + ": no status yet"
}

// hintedError is an error with a hint of the command that met it.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// hintSteered adds advice for an operation whose outcome is unknown.
func hintSteered(err error) error {
	if errors.Is(err, client.ErrOutcomeUnknown) {
		return &hintedError{err, "perdure cluster status shows how it is; repeating the command is safe"}
	}
	return err
}
