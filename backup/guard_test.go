package backup

import (
	"errors"
	"strings"
	"testing"
)

// TestOtherIndex: a checkpoint that is not at the index which its node announced is none of the cut.
func TestOtherIndex(t *testing.T) {
	s, c := memFolder(t), newCluster(1, 1)
	c.before = func(call string, _ Checkpoint, _ string) error {
		if call == "list" {
			c.mu.Lock()
			c.shifted = 1
			c.mu.Unlock()
		}
		return nil
	}
	lost := (*ReplicasError)(nil)
	if _, err := Create(t.Context(), c, s, optionsAt(t, start)); !errors.As(err, &lost) {
		t.Fatalf("error %v", err)
	}
	if all, err := Names(t.Context(), s); err != nil || len(all) > 0 {
		t.Fatalf("backups %v, error %v", all, err)
	}
}

// TestDeletedMeanwhile deletes a copied file, or the create's partial, before the last file is read: there is no backup.
func TestDeletedMeanwhile(t *testing.T) {
	for _, prefix := range []string{filesPrefix, partialPrefix} {
		s, c := memFolder(t), newCluster(1, 2)
		opts := optionsAt(t, start)
		opts.saveEvery = 1 << 60 // the partial is looked for at the end alone
		deleted := ""
		opts.Progress = func(p Progress) {
			if p.FilesDone < 8 || deleted != "" {
				return
			}
			objects, err := s.List(t.Context(), prefix)
			if err != nil || len(objects) == 0 {
				t.Errorf("%d objects under %s, error %v", len(objects), prefix, err)
				return
			}
			deleted = objects[0].Name
			if err := s.Delete(t.Context(), deleted); err != nil {
				t.Error(err)
			}
		}
		_, err := Create(t.Context(), c, s, opts)
		lost, taken := (*StoreError)(nil), (*BusyError)(nil)
		if !errors.As(err, &lost) && !errors.As(err, &taken) {
			t.Errorf("%s deleted: error %v", deleted, err)
		}
		if prefix == partialPrefix && taken == nil || prefix == filesPrefix && (lost == nil || !strings.Contains(lost.Object, deleted)) {
			t.Errorf("%s deleted: error %v", deleted, err)
		}
		if all, err := Names(t.Context(), s); err != nil || len(all) > 0 {
			t.Errorf("%s deleted: backups %v, error %v", deleted, all, err)
		}
	}
}
