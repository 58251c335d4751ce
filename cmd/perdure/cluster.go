package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
)

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show the cluster and transfer leaderships",
		Long: `Show the cluster's nodes, partitions and leaders, and transfer leaderships. Any
node answers for the whole cluster.`,
		Example: `  perdure cluster status
  perdure cluster transfer --from n2
  perdure cluster upgrade`,
		Args: noSuchCommand,
		RunE: func(*cobra.Command, []string) error { return usagef("a command is missing") },
	}
	cmd.AddCommand(a.clusterStatusCommand(), a.clusterTransferCommand(), a.clusterUpgradeCommand())
	return cmd
}

// unhealthyError counts the problems of a cluster.
type unhealthyError struct{ n int }

func (e *unhealthyError) Error() string {
	return "the cluster has " + nounText(e.n, "problem")
}

// States of a replica, and verdicts of a comparison, as the wire has them.
const (
	replicaHalted      = "halted"
	replicaRebuilding  = "rebuilding"
	replicaUnreachable = "unreachable"

	comparedEqual     = "equal"
	comparedDifferent = "different"
)

// slowClock is the clock offset that status notes. A node beyond it transfers its leaderships away.
const slowClock = 500 * time.Millisecond

// farBehind is the lag in entries that status notes. A replica beyond it is no transfer target.
const farBehind = 256

// because is a problem in parentheses, or empty.
func because(problem string) string {
	if problem == "" {
		return ""
	}
	return " (" + printable(unframed(problem)) + ")"
}

// unframed is a problem without the frames that gRPC puts around it.
func unframed(problem string) string {
	for {
		_, inner, framed := strings.Cut(problem, "desc = ")
		if !framed {
			return strings.TrimPrefix(problem, "transport: Error while dialing: ")
		}
		if plain, err := strconv.Unquote(inner); err == nil {
			inner = plain
		}
		problem = inner
	}
}

// offsetText formats a clock's offset from the others: "in step", "120ms ahead", "1.5s behind".
func offsetText(ms int64) string {
	const step = 10
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms >= step:
		return d.String() + " ahead"
	case ms <= -step:
		return (-d).String() + " behind"
	default:
		return "in step"
	}
}

// listText lists words: "a", "a and b", "a, b and c".
func listText(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// nounText counts things: "1 node", "3 nodes".
func nounText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// texts makes a list of texts a JSON value.
func texts(list []string) []any {
	out := make([]any, len(list))
	for i, text := range list {
		out[i] = text
	}
	return out
}

// leaderships counts how many partitions each node leads, by node, in order: "n1 (2), n3 (1)".
func leaderships(s *perdurev1.ClusterStatus) string {
	counts := map[string]int{}
	var nodes []string
	for _, p := range s.GetPartitions() {
		if counts[p.GetLeader()]++; counts[p.GetLeader()] == 1 && p.GetLeader() != "" {
			nodes = append(nodes, p.GetLeader())
		}
	}
	slices.Sort(nodes)
	for i, n := range nodes {
		nodes[i] = fmt.Sprintf("%s (%d)", printable(n), counts[n])
	}
	return dash(strings.Join(nodes, ", "))
}
