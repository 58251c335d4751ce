package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// TestVerdictOfNodes: the audits of several nodes become one verdict. It reports a violation of several replicas once,
// with their nodes, finds states that differ at one index, and names each audit that did not finish.
func TestVerdictOfNodes(t *testing.T) {
	audit := func(node string, a *perdurev1.ReplicaAudit) *perdurev1.VerifyEvent {
		return &perdurev1.VerifyEvent{NodeId: node, Kind: &perdurev1.VerifyEvent_Audit{Audit: a}}
	}
	done := func(node string) *perdurev1.VerifyEvent {
		return &perdurev1.VerifyEvent{NodeId: node, Kind: &perdurev1.VerifyEvent_Done{Done: true}}
	}
	problem := &perdurev1.AuditProblem{Rule: "ending", Namespace: "default", Id: "order-1", Detail: "it ended otherwise"}
	entry := &perdurev1.AuditProblem{Rule: "ending", Namespace: "default", Id: "order-1", Detail: "another", Seq: proto.Uint64(3)}
	r := auditReportOf([]*perdurev1.VerifyEvent{
		audit("n1", &perdurev1.ReplicaAudit{Partition: 1, Applied: 7, Through: 7, Content: 1, Keys: 10}),
		audit("n2", &perdurev1.ReplicaAudit{Partition: 0, Applied: 9, Through: 9, Content: 5, Keys: 10, Found: 2, Problems: []*perdurev1.AuditProblem{problem, entry}}),
		audit("n1", &perdurev1.ReplicaAudit{Partition: 0, Applied: 9, Through: 9, Content: 5, Keys: 10, Found: 4, Problems: []*perdurev1.AuditProblem{problem}}),
		audit("n2", &perdurev1.ReplicaAudit{Partition: 1, Applied: 7, Through: 7, Content: 2, Keys: 10}),
		audit("n4", &perdurev1.ReplicaAudit{Partition: 1, Applied: 7, Through: 8, Content: 3, Keys: 10}), // of several states
		audit("n4", &perdurev1.ReplicaAudit{Partition: 2, Error: "it has halted"}),
		done("n1"), done("n2"), done("n4"),
		{NodeId: "n3", Kind: &perdurev1.VerifyEvent_Refused{Refused: "it verifies for another caller"}},
		audit("n5", &perdurev1.ReplicaAudit{Partition: 0, Applied: 3, Through: 3}),
	})
	var got []string
	for _, f := range r.findings {
		got = append(got, findingText(f))
	}
	want := []string{
		"violation: ending: order-1: it ended otherwise (namespace default, partition 0, on n1 and n2)",
		"violation: more_violations: 3 more violations are not listed (partition 0, on n1)",
		"violation: ending: order-1, entry 3: another (namespace default, partition 0, on n2)",
		"violation: content_differs: at index 7 the state on n2 is not that on n1 (partition 1, on n1 and n2)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	failed := strings.Join(r.failed, "\n")
	for _, text := range []string{"node n3: it verifies for another caller", "partition 2 on node n4: it has halted", "node n5: it was lost on the way"} {
		if !strings.Contains(failed, text) {
			t.Errorf("%q is not among\n%s", text, failed)
		}
	}
	var unaudited *notAuditedError
	if err := (verdict{audits: r}).err(); !errors.As(err, &unaudited) || (&app{}).complain(context.Background(), err).exit != exitUnavailable {
		t.Errorf("without a violation it ends with %v", err)
	}
}

// Cluster status shows a problem that an audit found, without ids.
func TestClusterStatusTellsOfAudits(t *testing.T) {
	s := &perdurev1.ClusterStatus{State: "ready", DirectoryLeader: "n1", Nodes: []*perdurev1.ClusterNode{{NodeId: "n1", Reachable: true}},
		Partitions: []*perdurev1.ClusterPartition{{Partition: 4, Leader: "n1", Replicas: []*perdurev1.ClusterReplica{{NodeId: "n1", State: "leader",
			Audit: &perdurev1.ReplicaAudit{Found: 2, Problems: []*perdurev1.AuditProblem{{Rule: "graph_run"}, {Rule: "graph_run"}}}}}}}}
	wrong, _ := diagnose(s)
	if len(wrong) != 1 || wrong[0] != "partition 4 on node n1 has 2 violations (graph_run): perdure verify lists them" {
		t.Errorf("%q", wrong)
	}
	if got := replicaText(s.Partitions[0].Replicas[0]); got != "leader, PROBLEM" {
		t.Errorf("the replica is %q", got)
	}
	s.Partitions[0].Replicas[0].Audit.Found = 0
	if wrong, _ := diagnose(s); len(wrong) != 0 {
		t.Errorf("%q", wrong)
	}
}
