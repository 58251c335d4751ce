package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) clusterStatusCommand() *cobra.Command {
	var (
		watch bool
		every time.Duration
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show nodes, partitions, replicas and problems",
		Long: `Show the nodes of the cluster, the leader of each partition, the progress of each
replica, and whether the replicas of a partition are equal. The last lines are
"healthy:", or one "problem:" for each problem and then "served:", the partitions
that still answer; then "retention:", how long what has ended is kept, "backups:", the
schedule and the newest one, and "quota:", what a namespace uses of its limits; then notes.

Problems are: an unreachable node, a partition or the directory without a leader, a
halted replica, replicas that differ, a disk low on space, a replica with a PROBLEM
that its node's background audit found, a scheduled backup that fails, and a cluster that is
still being created.
Notes are: a replica that is being rebuilt or lags, a clock that is off, nodes with
different --retention or schedules of backups, or that purge nothing, and quarantined
replicas.

KNOWS is the newest feature level that a node's version knows; the first line has
the cluster's, which "perdure cluster upgrade" raises.

COMPARED is the index at which the replicas' checksums were compared: "equal",
"DIFFERENT", or "not yet" while they have no common index. Unreachable and halted
replicas are not compared.

Exit codes: 0 healthy, 1 problems, 2 bad usage, 5 no node answers.
With --watch, those of the last status before Ctrl-C.`,
		Example: `  perdure cluster status
  perdure cluster status --addr 127.0.0.1:7400,127.0.0.1:7410,127.0.0.1:7420 --watch
  perdure cluster status --json | jq .problems`,
		Args: exactly(),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "repeat until Ctrl-C")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "interval of --watch")
	cmd.RunE = a.doClient(func(ctx context.Context, c *client.Client, _ []string) error {
		if every <= 0 {
			return usagef("--every %v: must be more than 0", every)
		}
		if watch {
			return a.watchCluster(ctx, c, every)
		}
		s, err := c.ClusterStatus(ctx)
		if err != nil {
			return err
		}
		return a.printCluster(s)
	})
	return cmd
}

// watchCluster prints the status every interval until ctx ends, and returns the last status's error.
func (a *app) watchCluster(ctx context.Context, c *client.Client, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last error
	for {
		s, err := c.ClusterStatus(ctx)
		if ctx.Err() != nil {
			return last
		}
		if a.terminal && !a.json {
			fmt.Fprint(a.out, "\x1b[H\x1b[2J") // from the top of an empty screen
		}
		if err == nil {
			last = a.printCluster(s)
		} else if last = err; !client.Unavailable(err) {
			return err
		} else if !a.json {
			fmt.Fprintf(a.out, "no answer: %s\n", sentences(lastCause(err)))
		}
		if !a.json {
			fmt.Fprintln(a.out)
		}
		if err := a.out.Flush(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return last
		}
	}
}

// printCluster prints a status and returns an unhealthyError if it has problems.
func (a *app) printCluster(s *perdurev1.ClusterStatus) error {
	problems, notes := diagnose(s)
	var err error
	if len(problems) > 0 {
		err = &unhealthyError{len(problems)}
	}
	if a.json {
		out := object{{"ok", err == nil}, {"problems", texts(problems)}, {"notes", texts(notes)}}
		if printErr := a.printJSON(append(out, messageObject(s.ProtoReflect())...)); printErr != nil {
			return printErr
		}
		return err
	}
	fmt.Fprintf(a.out, "cluster %s, %s, epoch %d, feature level %s; answered by %s, directory led by %s\n\n",
		orDash(s.GetClusterId()), orDash(s.GetState()), s.GetEpoch(), levelText(s.GetFeatureLevel()), orDash(s.GetAnsweredBy()), orDash(s.GetDirectoryLeader()))
	w := a.table()
	fmt.Fprintln(w, "NODE\tREACHABLE\tGRPC\tHTTP\tPEERS\tLEADS\tCLOCK\tKNOWS\tVERSION")
	for _, n := range s.GetNodes() {
		reachable, clock, leads := "yes", offsetText(n.GetClockOffsetMs()), fmt.Sprint(n.GetLeads())
		if !n.GetReachable() {
			reachable, clock, leads = "NO", "-", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(n.GetNodeId()), reachable, orDash(n.GetGrpcAddr()), orDash(n.GetHttpAddr()),
			orDash(n.GetPeerAddr()), leads, clock, levelText(n.GetFeatureLevel()), orDash(n.GetVersion()))
	}
	if flushErr := w.Flush(); flushErr != nil {
		return flushErr
	}
	fmt.Fprintln(a.out)
	fmt.Fprintln(w, "PARTITION\tLEADER\tTERM\tCOMPARED\tREPLICA\tSTATE\tAPPLIED\tBEHIND")
	for _, p := range s.GetPartitions() {
		head := fmt.Sprintf("%d\t%s\t%d\t%s", p.GetPartition(), leaderText(p), p.GetTerm(), comparedText(p))
		if len(p.GetReplicas()) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\n", head)
		}
		for _, r := range p.GetReplicas() {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", head, orDash(r.GetNodeId()), replicaText(r), progressText(p, r))
			head = "\t\t\t" // once for all replicas
		}
	}
	if flushErr := w.Flush(); flushErr != nil {
		return flushErr
	}
	fmt.Fprintf(a.out, "\n%s\n", strings.Join(summary(s, problems, notes), "\n"))
	return err
}

// levelText is a feature level; "-" if it is unknown.
func levelText(level uint64) string {
	if level == 0 {
		return "-"
	}
	return fmt.Sprint(level)
}

// leaderText names the leader of a partition, and the preferred node if that is another.
func leaderText(p *perdurev1.ClusterPartition) string {
	switch {
	case p.GetLeader() == "":
		return "NONE"
	case p.GetPreferred() != "" && p.GetPreferred() != p.GetLeader():
		return printable(p.GetLeader()) + " for " + printable(p.GetPreferred())
	}
	return printable(p.GetLeader())
}

func comparedText(p *perdurev1.ClusterPartition) string {
	switch {
	case p.GetComparison() == comparedEqual:
		return fmt.Sprintf("equal at %d", p.GetComparedIndex())
	case p.GetComparison() == comparedDifferent:
		return fmt.Sprintf("DIFFERENT at %d", p.GetComparedIndex())
	case len(p.GetReplicas()) < 2:
		return "-" // nothing to compare with
	}
	return "not yet"
}

// replicaText is a replica's state; problems are in capitals.
func replicaText(r *perdurev1.ClusterReplica) string {
	switch r.GetState() {
	case replicaHalted, replicaUnreachable:
		return strings.ToUpper(r.GetState())
	}
	if r.GetAudit().GetFound() > 0 {
		return orDash(r.GetState()) + ", PROBLEM"
	}
	return orDash(r.GetState())
}

// progressText is two columns: the applied index, and the entries behind the leader (unknown without one).
func progressText(p *perdurev1.ClusterPartition, r *perdurev1.ClusterReplica) string {
	switch {
	case r.GetState() == replicaUnreachable || r.GetState() == replicaHalted:
		return "-\t-"
	case p.GetLeader() == "":
		return fmt.Sprintf("%d\t-", r.GetApplied())
	}
	return fmt.Sprintf("%d\t%d", r.GetApplied(), r.GetLag())
}
