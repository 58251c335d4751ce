package partition

import (
	"context"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/quota"
)

// newQuota makes the ledger of the namespaces' quotas. Nodes learn from each other's status what they use.
func newQuota(n *Node) *quota.Quota {
	o := quota.Options{Quotas: n.cfg.Quotas, Clock: n.clock, Log: n.log, Lifetime: n.lifetime,
		Replicas: func() (out []quota.Replica) {
			for _, r := range n.router.Replicas() {
				out = append(out, retained{r})
			}
			return out
		}}
	if !n.identity.Alone() {
		o.Others = n.usedElsewhere
	}
	return quota.New(o)
}

// usedElsewhere asks the other members what namespaces use of their quotas.
func (n *Node) usedElsewhere(ctx context.Context) map[string]*quota.Use {
	out := map[string]*quota.Use{}
	members := n.cluster.Members()
	answers, _ := memberClient{n}.askAll(ctx, members)
	for i, m := range members {
		if m.ServerId == n.identity.ServerID {
			continue
		}
		out[m.ServerId] = nil
		if answers[i] == nil {
			continue
		}
		use := &quota.Use{Namespaces: map[string]*perdurev1.NamespaceUse{}}
		for _, u := range answers[i].Quotas {
			use.Namespaces[u.Namespace] = u
		}
		for _, r := range answers[i].Replicas {
			use.Leads = use.Leads || r.Serving
		}
		out[m.ServerId] = use
	}
	return out
}

// sumQuotas adds what a node's answer says to what a cluster's namespaces use.
func sumQuotas(sum, more []*perdurev1.NamespaceUse) []*perdurev1.NamespaceUse {
	for _, u := range more {
		at := -1
		for i, s := range sum {
			if s.Namespace == u.Namespace {
				at = i
			}
		}
		if at < 0 {
			sum = append(sum, &perdurev1.NamespaceUse{Namespace: u.Namespace, OpenLimit: u.OpenLimit, BytesLimit: u.BytesLimit, StartsLimit: u.StartsLimit})
			at = len(sum) - 1
		}
		sum[at].Open += u.Open
		sum[at].Bytes += u.Bytes
		sum[at].Refused += u.Refused
	}
	return sum
}
