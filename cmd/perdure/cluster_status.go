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
		Short: "Show nodes, partitions and replicas, and say whether all is well",
		Long: `Show the nodes of the cluster, who leads which partition, how far each replica
is, and whether the replicas of a partition hold the same. The last lines say in
words that all is well, or each thing that is WRONG and what is served all the same,
and what else is worth a note.

Wrong is: a node that cannot be reached, a partition or the directory without a
leader, a replica that has halted, replicas that differ, a disk that is low on
space, a replica with a PROBLEM that its node found when it last checked its state in
the background, and a cluster that is still being made. A replica that is being
rebuilt or far behind, a clock that is off,
and former replicas that a node keeps are told, and are not wrong.

COMPARED is the index at which the replicas' checksums were compared: "equal",
"DIFFERENT", or "not yet" while they have no common index to be compared at. Only
replicas that answer and have not halted can be compared.

Exit codes: 0 all is well, 1 something is wrong, 2 bad usage, 5 no node answers.
With --watch, those of the last look before Ctrl-C.`,
		Example: `  perdure cluster status
  perdure cluster status --addr 127.0.0.1:7400,127.0.0.1:7410,127.0.0.1:7420 --watch
  perdure cluster status --json | jq .problems`,
		Args: exactly(),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "look again and again, until Ctrl-C")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "how often --watch looks")
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

// watchCluster shows the cluster again and again until ctx ends; then it answers as the last look did.
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

// printCluster shows a cluster and returns an unwellError if something is wrong with it.
func (a *app) printCluster(s *perdurev1.ClusterStatus) error {
	wrong, notes := diagnose(s)
	var err error
	if len(wrong) > 0 {
		err = &unwellError{len(wrong)}
	}
	if a.json {
		out := object{{"ok", err == nil}, {"problems", texts(wrong)}, {"notes", texts(notes)}}
		if printErr := a.printJSON(append(out, messageObject(s.ProtoReflect())...)); printErr != nil {
			return printErr
		}
		return err
	}
	fmt.Fprintf(a.out, "cluster %s, %s, epoch %d; answered by %s, directory led by %s\n\n",
		orDash(s.GetClusterId()), orDash(s.GetState()), s.GetEpoch(), orDash(s.GetAnsweredBy()), orDash(s.GetDirectoryLeader()))
	w := a.table()
	fmt.Fprintln(w, "NODE\tREACHABLE\tGRPC\tHTTP\tPEERS\tLEADS\tCLOCK\tVERSION")
	for _, n := range s.GetNodes() {
		reachable, clock, leads := "yes", offsetText(n.GetClockOffsetMs()), fmt.Sprint(n.GetLeads())
		if !n.GetReachable() {
			reachable, clock, leads = "NO", "-", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(n.GetNodeId()), reachable, orDash(n.GetGrpcAddr()), orDash(n.GetHttpAddr()),
			orDash(n.GetPeerAddr()), leads, clock, orDash(n.GetVersion()))
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
	fmt.Fprintf(a.out, "\n%s\n", strings.Join(summary(s, wrong, notes), "\n"))
	return err
}

// leaderText names the leader of a partition, and who should lead it if that is another.
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
		return "-" // with what?
	}
	return "not yet"
}

// replicaText is a replica's state; what is wrong is in capitals.
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

// progressText is how far a replica is and how much it lacks: two columns. Without a leader nobody knows the latter.
func progressText(p *perdurev1.ClusterPartition, r *perdurev1.ClusterReplica) string {
	switch {
	case r.GetState() == replicaUnreachable || r.GetState() == replicaHalted:
		return "-\t-"
	case p.GetLeader() == "":
		return fmt.Sprintf("%d\t-", r.GetApplied())
	}
	return fmt.Sprintf("%d\t%d", r.GetApplied(), r.GetLag())
}
