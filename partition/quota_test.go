package partition

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/grouptest"
	"perdure/partition/quota"
	"perdure/partition/stable"
)

// A namespace that asks for ten times its quota gets its quota; another is not touched. A repeated start gets its answer, and an
// execution that ends makes place.
func TestQuota(t *testing.T) {
	quotas, err := quota.Parse([]string{"greedy=open:20"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 3)
	cfg.Quotas = quotas
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	n := startNode(t, cfg)
	cmd := func(ns, id string) *commandv1.Command {
		c := grouptest.StartCmd(ns+id, id, "f", "")
		c.Namespace = ns
		return c
	}
	outcomes := make(chan error, 200)
	for i := range 200 {
		go func() {
			_, err := n.Router().Propose(t.Context(), cmd("greedy", fmt.Sprint(i)))
			outcomes <- err
		}()
		must(t, n.Router(), cmd("modest", fmt.Sprint(i)))
	}
	admitted := 0
	for range 200 {
		err := <-outcomes
		var refused *api.Error
		switch {
		case err == nil:
			admitted++
		case !errors.As(err, &refused) || refused.Reason != perdurev1.Reason_REASON_QUOTA_EXCEEDED || api.Retryable(refused.Reason) ||
			refused.Meta["allowed"] != "20" || refused.Meta["namespace"] != "greedy":
			t.Errorf("refused with %v", err)
		}
	}
	if admitted != 20 {
		t.Errorf("%d of 200 starts were admitted, want 20", admitted)
	}
	first := ""
	for i := range 200 {
		if _, err := n.Router().Propose(t.Context(), cmd("greedy", fmt.Sprint(i))); err == nil {
			first = fmt.Sprint(i)
			admitted--
		}
	}
	if admitted != 0 {
		t.Errorf("%d repeated starts were not answered", admitted)
	}
	end := grouptest.TerminateCmd(first)
	end.Namespace = "greedy"
	must(t, n.Router(), end)
	waitFor(t, "the place of what has ended", func() bool {
		_, err := n.Router().Propose(t.Context(), cmd("greedy", "next"))
		return err == nil
	}, func() string { return "" })
	st, err := n.Operator().ClusterStatus(t.Context())
	if err != nil || len(st.Quotas) != 1 || st.Quotas[0].Open != 20 || st.Quotas[0].OpenLimit != 20 || st.Quotas[0].Refused == 0 {
		t.Errorf("the cluster reports %v, %v", st.GetQuotas(), err)
	}
}
