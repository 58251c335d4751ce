package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"perdure/fsm/state"
	"perdure/partition/grouptest"
	"perdure/partition/retention"
	"perdure/partition/stable"
)

// A node purges what ended longer ago than its policy keeps it, and nothing else.
func TestRetention(t *testing.T) {
	policy, err := retention.ParsePolicy([]string{"1h", "default/kept=forever"})
	if err != nil {
		t.Fatal(err)
	}
	clock := newSteppedClock(t)
	cfg := memConfig(t, vfs.NewMem(), stable.NewMemory(), 1)
	cfg.Clock, cfg.Retention, cfg.RetentionInterval = clock, policy, time.Minute
	reg := prometheus.NewRegistry()
	cfg.Registerer = reg
	n := startNode(t, cfg)
	there := func(id string) (ok bool) {
		t.Helper()
		if err := n.router.Of(ns, id).Store().View(func(r state.Reader) (err error) {
			_, ok, err = state.ReadPromise(r, ns, id)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	var over []string
	for i := range 20 {
		id := fmt.Sprintf("over-%d", i)
		must(t, n.Router(), grouptest.StartCmd(id, id, "f", ""))
		must(t, n.Router(), grouptest.TerminateCmd(id))
		over = append(over, id)
	}
	must(t, n.Router(), grouptest.StartCmd("kept", "kept", "kept", ""))
	must(t, n.Router(), grouptest.TerminateCmd("kept"))
	must(t, n.Router(), grouptest.StartCmd("open", "open", "f", ""))
	must(t, n.Router(), promiseCmd("settled", 3_600_000))
	must(t, n.Router(), grouptest.SettleCmd("settled", "1"))
	must(t, n.Router(), promiseCmd("pending", 360_000_000))
	over = append(over, "settled")
	clock.Advance(50 * time.Minute)
	must(t, n.Router(), grouptest.StartCmd("young", "young", "f", ""))
	must(t, n.Router(), grouptest.TerminateCmd("young"))
	for _, id := range over {
		if !there(id) {
			t.Fatalf("%s was purged before its time", id)
		}
	}
	waitFor(t, "what is over to be purged", func() bool {
		if clock.HandClock.Now().Sub(clock.since) < 100*time.Minute {
			clock.Advance(30 * time.Second)
		}
		for _, id := range over {
			if there(id) {
				return false
			}
		}
		return true
	}, func() string { return "" })
	shows(t, reg, "purged_total{0}", "all that was over", equals(float64(len(over))))
	st, err := n.Operator().ClusterStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := st.Nodes[0].Retention; r.GetPurged() != uint64(len(over)) || !slices.Equal(r.GetRules(), []string{"1h", "default/kept=forever"}) || r.GetIdle() != "" {
		t.Errorf("the node reports %v", r)
	}
	for _, id := range []string{"kept", "open", "young", "pending"} {
		if !there(id) {
			t.Errorf("%s was purged", id)
		}
	}
}
