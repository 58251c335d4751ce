package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
)

// notAuditedError names the replicas that could not be audited, with the reasons.
type notAuditedError struct{ failed []string }

func (e *notAuditedError) Error() string {
	return "cannot audit every replica: " + strings.Join(e.failed, ", and ")
}

// auditReport sums up the findings of a cluster's nodes in their replicas.
type auditReport struct {
	// left is the reason why the audit was skipped, which is no failure; empty otherwise.
	left string
	// audits are those of all replicas, by node and partition.
	audits []nodeAudit
	// failed are the nodes and replicas that could not be audited, with the reasons.
	failed   []string
	findings []finding
}

type nodeAudit struct {
	node string
	*perdurev1.ReplicaAudit
}

// auditReplicas has every node audit its replicas.
func (a *app) auditReplicas(ctx context.Context) (*auditReport, error) {
	c, err := a.dial()
	if err != nil {
		return nil, err
	}
	progress := a.newProgress()
	audited := 0
	events, err := c.Verify(ctx, func(ev *perdurev1.VerifyEvent) {
		if ev.GetAudit() != nil {
			audited++
		}
		progress.at(func() string {
			if p := ev.GetProgress(); p != nil {
				return fmt.Sprintf("%s, node %s is at %d keys of partition %d", nounText(audited, "replica"), ev.GetNodeId(), p.GetKeys(), p.GetPartition())
			}
			return nounText(audited, "replica")
		})
	})
	switch status.Code(err) {
	case codes.Unimplemented:
		return &auditReport{left: "this server has no operators' service, or an older one"}, c.Close()
	case codes.PermissionDenied:
		return &auditReport{left: "the token is not good for all namespaces"}, c.Close()
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	return auditReportOf(events), nil
}

// auditReportOf sums up the nodes' events: a violation of several replicas is one finding.
func auditReportOf(events []*perdurev1.VerifyEvent) *auditReport {
	r := &auditReport{}
	type location struct {
		rule, namespace, id, detail string
		seq                         uint64
		partition                   uint32
	}
	at := map[location]int{}
	over := map[string]bool{}
	var nodes []string
	for _, ev := range events {
		node := orDash(ev.GetNodeId())
		if !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
		switch kind := ev.GetKind().(type) {
		case *perdurev1.VerifyEvent_Done:
			over[node] = true
		case *perdurev1.VerifyEvent_Refused:
			over[node] = true
			r.failed = append(r.failed, fmt.Sprintf("node %s: %s", node, sentences(kind.Refused)))
		case *perdurev1.VerifyEvent_Audit:
			if kind.Audit.GetError() != "" {
				r.failed = append(r.failed, fmt.Sprintf("partition %d on node %s: %s", kind.Audit.GetPartition(), node, sentences(kind.Audit.GetError())))
				continue
			}
			r.audits = append(r.audits, nodeAudit{node, kind.Audit})
		}
	}
	for _, node := range nodes {
		if !over[node] {
			r.failed = append(r.failed, fmt.Sprintf("node %s: it was lost on the way", node))
		}
	}
	slices.SortStableFunc(r.audits, func(x, y nodeAudit) int {
		if c := strings.Compare(x.node, y.node); c != 0 {
			return c
		}
		return int(x.GetPartition()) - int(y.GetPartition())
	})
	for _, a := range r.audits {
		for _, p := range a.GetProblems() {
			key := location{p.GetRule(), p.GetNamespace(), p.GetId(), p.GetDetail(), p.GetSeq(), a.GetPartition()}
			n, known := at[key]
			if !known {
				n = len(r.findings)
				at[key] = n
				r.findings = append(r.findings, finding{partition: int(a.GetPartition()), Violation: audit.Violation{Rule: p.GetRule(),
					Namespace: p.GetNamespace(), ID: p.GetId(), Seq: p.GetSeq(), HasSeq: p.Seq != nil, Detail: p.GetDetail()}})
			}
			if f := &r.findings[n]; !slices.Contains(f.nodes, a.node) {
				f.nodes = append(f.nodes, a.node)
			}
		}
		if kept := uint64(len(a.GetProblems())); a.GetFound() > kept {
			r.findings = append(r.findings, finding{partition: int(a.GetPartition()), nodes: []string{a.node}, Violation: audit.Violation{
				Rule: ruleMore, Detail: fmt.Sprintf("%d more violations are not listed", a.GetFound()-kept)}})
		}
	}
	r.compareContent()
	return r
}

const (
	// ruleMore is the rule of the row that counts the violations a node did not list.
	ruleMore = "more_violations"
	// ruleContentDiffers: replicas have the same content at the same index.
	ruleContentDiffers = "content_differs"
)

// compareContent compares the hashes of whole states of the same index.
func (r *auditReport) compareContent() {
	type point struct {
		partition uint32
		applied   uint64
	}
	seen := map[point]nodeAudit{}
	reported := map[point]bool{}
	for _, a := range r.audits {
		p := point{a.GetPartition(), a.GetApplied()}
		if a.GetApplied() != a.GetThrough() {
			continue
		}
		first, known := seen[p]
		if !known {
			seen[p] = a
			continue
		}
		if first.GetContent() != a.GetContent() && !reported[p] {
			reported[p] = true
			r.findings = append(r.findings, finding{partition: int(p.partition), nodes: []string{first.node, a.node}, Violation: audit.Violation{
				Rule: ruleContentDiffers, Detail: fmt.Sprintf("at index %d the state on %s is not that on %s", p.applied, a.node, first.node)}})
		}
	}
}

// lines are the report for people.
func (r *auditReport) lines() []string {
	if r.left != "" {
		return []string{"replicas were not audited: " + r.left}
	}
	keys, found := uint64(0), uint64(0)
	for _, a := range r.audits {
		keys += a.GetKeys()
		found += a.GetFound()
	}
	line := fmt.Sprintf("%s audited, %s", nounText(len(r.audits), "replica"), nounText(int(keys), "key"))
	if found > 0 {
		line += fmt.Sprintf(", %s", nounText(int(found), "violation"))
	}
	return append([]string{line}, r.failed...)
}

// value is the report as JSON: null when nothing was audited.
func (r *auditReport) value() any {
	if r.left != "" {
		return nil
	}
	items := make([]any, len(r.audits))
	for i, a := range r.audits {
		items[i] = object{{"node", a.node}, {"partition", uint64(a.GetPartition())}, {"index", a.GetApplied()}, {"through", a.GetThrough()},
			{"content", fmt.Sprintf("%016x", a.GetContent())}, {"keys", a.GetKeys()}, {"found", a.GetFound()}, {"took_ms", a.GetTookMs()}}
	}
	return items
}
