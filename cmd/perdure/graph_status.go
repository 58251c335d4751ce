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

func (a *app) graphStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status ID",
		Short: "Show the progress of a run and its nodes",
		Long: `Show the progress of a run and each of its nodes. Exit code 0 means that the status
was read, whatever it is; perdure graph watch and perdure result exit with the
run's outcome.`,
		Example: `  perdure graph status report-7
  perdure graph status report-7 --json | jq -r '.nodes[] | select(.status == "failed") | .id'`,
		Args: exactly("ID"),
		RunE: a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.GraphStatus(ctx, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(messageObject(s.ProtoReflect()))
			}
			return a.printGraphStatus(s)
		}),
	}
}

// printGraphStatus shows a run as lines of name and value, and a table of its nodes in the order of the graph.
func (a *app) printGraphStatus(s *perdurev1.GraphStatus) error {
	w := a.table()
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("ID", printable(s.GetId()))
	line("Name", printable(s.GetName()))
	line("Status", phaseText(s))
	line("Parent", printable(s.GetParentId()))
	line("Cancelled for", printable(s.GetCancelReason()))
	line("Problem", printable(s.GetProblem()))
	line("Nodes", fmt.Sprintf("%d: %s", len(s.GetNodes()), countNodes(s)))
	line("Created", a.moment(s.GetCreatedMs()))
	if ms := s.GetClosedMs(); ms != 0 {
		line("Finished", a.moment(ms)+", after "+span(time.Duration(ms-s.GetCreatedMs())*time.Millisecond))
	}
	incarnation := fmt.Sprint(s.GetIncarnation())
	if s.GetFormerIncarnation() != 0 {
		incarnation += fmt.Sprintf(", continues %d", s.GetFormerIncarnation())
	}
	line("Incarnation", incarnation)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	w = a.table()
	fmt.Fprintln(w, "NODE\tSTATUS\tKIND\tATTEMPT\tTIME\tNOTE")
	for _, n := range s.GetNodes() {
		attempt := "-"
		if n.GetAttempt() != 0 {
			attempt = fmt.Sprint(n.GetAttempt())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", orDash(n.GetId()), nodeStatusText(shownStatus(n)), orDash(n.GetKind()), attempt,
			dash(a.nodeAge(n)), dash(a.nodeNote(n)))
	}
	return w.Flush()
}

// phaseText is the status of a run, with its phase where that adds something: "running", "suspended", "stuck
// (failed)".
func phaseText(s *perdurev1.GraphStatus) string {
	status, phase := statusText(s.GetStatus()), printable(s.GetPhase())
	switch {
	case phase == "" || phase == status || phase == "progressing":
		return status
	case s.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_RUNNING:
		return phase
	}
	return phase + " (" + status + ")"
}

func nodeStatusText(s perdurev1.NodeStatus) string { return enumName(s.Descriptor(), int32(s)) }

// shownStatus is a node's status for people: one whose next attempt is still to come waits.
func shownStatus(n *perdurev1.GraphNodeState) perdurev1.NodeStatus {
	if n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_RUNNING && n.GetRetryAtMs() != 0 {
		return perdurev1.NodeStatus_NODE_STATUS_WAITING
	}
	return n.GetStatus()
}

// nodeStatuses are the statuses of nodes in the order in which they are counted.
var nodeStatuses = []perdurev1.NodeStatus{
	perdurev1.NodeStatus_NODE_STATUS_COMPLETED, perdurev1.NodeStatus_NODE_STATUS_SKIPPED, perdurev1.NodeStatus_NODE_STATUS_FAILED,
	perdurev1.NodeStatus_NODE_STATUS_RUNNING, perdurev1.NodeStatus_NODE_STATUS_WAITING, perdurev1.NodeStatus_NODE_STATUS_PENDING,
}

// countNodes counts nodes by status: "3 completed, 1 running".
func countNodes(s *perdurev1.GraphStatus) string {
	counts := nodeCounts(s)
	var parts []string
	for _, status := range nodeStatuses {
		if n := counts[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, nodeStatusText(status)))
		}
	}
	return dash(strings.Join(parts, ", "))
}

func nodeCounts(s *perdurev1.GraphStatus) map[perdurev1.NodeStatus]int {
	counts := map[perdurev1.NodeStatus]int{}
	for _, n := range s.GetNodes() {
		counts[shownStatus(n)]++
	}
	return counts
}

// nodeAge is how long a node has taken, or takes already; "" if it was not started.
func (a *app) nodeAge(n *perdurev1.GraphNodeState) string {
	switch {
	case n.GetStartedMs() == 0:
		return ""
	case n.GetEndedMs() != 0:
		return span(time.Duration(max(0, n.GetEndedMs()-n.GetStartedMs())) * time.Millisecond)
	default:
		return span(max(0, a.now().Sub(time.UnixMilli(n.GetStartedMs()))))
	}
}

// nodeNote is the remark about a node in its row.
func (a *app) nodeNote(n *perdurev1.GraphNodeState) string {
	var parts []string
	if n.GetSignal() != "" {
		parts = append(parts, "waits for signal "+printable(n.GetSignal()))
	}
	if n.GetRetryAtMs() != 0 && n.GetEndedMs() == 0 {
		if a.now().UnixMilli() < n.GetRetryAtMs() {
			parts = append(parts, "to be tried again "+a.since(n.GetRetryAtMs()))
		} else {
			parts = append(parts, "about to be tried again")
		}
	}
	if n.GetByPropagation() {
		parts = append(parts, "a node before it failed")
	} else if n.GetFailure() != nil {
		parts = append(parts, failureText(n.GetFailure()))
	} else if n.GetSkipReason() != "" {
		parts = append(parts, printable(n.GetSkipReason()))
	}
	if n.GetKept() {
		parts = append(parts, "kept")
	}
	if n.GetUnobserved() {
		parts = append(parts, "not observed yet")
	}
	return strings.Join(parts, "; ")
}
