package embed_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"perdure/backup"
	"perdure/internal/testkit"
)

// A cluster with a schedule makes a backup of all partitions by itself, each from another node, and says so.
func TestScheduledBackup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	cfgs := memberConfigs(t)
	for i := range cfgs {
		cfgs[i].BackupURL = "file://" + dir
	}
	startAll(t, cfgs...)
	c := clusterClient(t, cfgs...)
	store, err := backup.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var names []string
	testkit.Eventually(t, testTimeout, "a backup", func() bool {
		names, err = backup.Names(ctx, store)
		return err != nil || len(names) > 0
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := backup.Read(ctx, store, names[0])
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]bool{}
	for _, s := range m.States {
		from[s.Node] = true
	}
	if len(m.States) == 0 || len(from) < 2 {
		t.Errorf("%d partitions, copied from the nodes %v", len(m.States), from)
	}
	if problems, err := backup.Verify(ctx, store, m.Name, nil); err != nil || len(problems) > 0 {
		t.Errorf("the backup: %v, %v", problems, err)
	}
	testkit.EventuallySeen(t, testTimeout, "the status", func() (string, bool) {
		st, err := c.ClusterStatus(ctx)
		leading := 0
		for _, n := range st.GetNodes() {
			if b := n.GetBackups(); b.GetLeads() && b.GetLastName() == m.Name && b.GetFailures() == 0 {
				leading++
			}
		}
		return fmt.Sprint(st, err), leading == 1 && len(st.GetNodes()) == 3
	})
}
