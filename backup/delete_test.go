package backup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDelete deletes backups that share files: what remains stays whole, and nothing else stays.
func TestDelete(t *testing.T) {
	s, c := memFolder(t), newCluster(2, 2)
	var names []string
	for i := range 4 {
		for p := range uint32(2) {
			c.write("n1", p, "000001.sst", fmt.Sprintf("round %d", i))
			c.write("n2", p, "000001.sst", fmt.Sprintf("round %d, other", i))
		}
		r, err := Create(t.Context(), c, s, optionsAt(t, start.Add(time.Duration(i)*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Name)
	}
	if none, err := Collect(t.Context(), s); err != nil || none.Files != 0 {
		t.Fatalf("collected %+v, error %v", none, err)
	}
	if err := Delete(t.Context(), s, names[0]); err != nil {
		t.Fatal(err)
	}
	put(t, s, "files/"+strings.Repeat("0", 64), "no manifest names it")
	deleted, err := Keep(t.Context(), s, "c-1", 2)
	if err != nil || !slices.Equal(deleted, names[1:2]) {
		t.Fatalf("deleted %v, error %v", deleted, err)
	}
	if other, err := Keep(t.Context(), s, "c-2", 1); err != nil || len(other) > 0 {
		t.Fatalf("backups of another cluster were deleted: %v, error %v", other, err)
	}
	done, err := Collect(t.Context(), s)
	if err != nil || done.Files != 5 {
		t.Fatalf("collected %+v, error %v", done, err)
	}
	for _, name := range names[2:] {
		if problems, err := Verify(t.Context(), s, name, nil); err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, error %v", name, problems, err)
		}
	}
	left, err := Names(t.Context(), s)
	if err != nil || !slices.Equal(left, names[2:]) {
		t.Fatalf("left are %v, error %v", left, err)
	}
	var missing *NotFoundError
	if err := Delete(t.Context(), s, names[0]); !errors.As(err, &missing) {
		t.Fatalf("deleting twice: %v", err)
	}
	if err := Delete(t.Context(), s, "../files"); err == nil {
		t.Fatal("a name that leads elsewhere was deleted")
	}
	if _, err := Keep(t.Context(), s, "c-1", 0); err == nil {
		t.Fatal("no backup was kept")
	}
	// A manifest that cannot be read hides which files are used.
	put(t, s, backupsPrefix+names[2]+jsonSuffix, "{}")
	var damaged *DamagedError
	if _, err := Collect(t.Context(), s); !errors.As(err, &damaged) {
		t.Fatalf("collected beside a damaged manifest: %v", err)
	}
	if err := Delete(t.Context(), s, names[2]); err != nil {
		t.Fatal(err)
	}
	if done, err := Collect(t.Context(), s); err != nil || done.Files == 0 {
		t.Fatalf("collected %+v, error %v", done, err)
	}
}

// TestCollectRefused: no file is deleted while a create runs, was interrupted, or another collection runs; and no create
// begins while files are deleted.
func TestCollectRefused(t *testing.T) {
	ctx := t.Context()
	s, c := memFolder(t), newCluster(1, 1)
	var busy *BusyError
	refused := 0
	opts := optionsAt(t, time.Now())
	opts.Progress = func(p Progress) {
		refused++
		if _, err := Collect(ctx, s); !errors.As(err, &busy) {
			t.Errorf("collected while a create runs: %v", err)
		}
		if err := Delete(ctx, s, p.Name); !errors.As(err, &busy) {
			t.Errorf("deleted while its create runs: %v", err)
		}
	}
	made, err := Create(ctx, c, s, opts)
	if err != nil || refused == 0 {
		t.Fatalf("error %v, %d refused", err, refused)
	}
	if _, err := Create(ctx, c, mortalStore(s, 25), optionsAt(t, start)); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	if _, err := Collect(ctx, s); !errors.As(err, &busy) {
		t.Fatalf("collected beside an interrupted create: %v", err)
	}
	left, err := Partials(ctx, s)
	if err != nil || len(left) != 1 {
		t.Fatalf("left %v, error %v", left, err)
	}
	if err := Delete(ctx, s, left[0].Name); err != nil {
		t.Fatal(err)
	}
	// A collection is killed behind its mark.
	if _, err := collect(ctx, mortalStore(s, 1), start); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	if _, err := Create(ctx, c, s, optionsAt(t, start.Add(time.Minute))); !errors.As(err, &busy) {
		t.Fatalf("created during a collection: %v", err)
	}
	if left, err := Partials(ctx, s); err != nil || len(left) > 0 {
		t.Fatalf("a refused create left %v, error %v", left, err)
	}
	if _, err := collect(ctx, s, start.Add(time.Minute)); !errors.As(err, &busy) {
		t.Fatalf("collected twice at once: %v", err)
	}
	if _, err := collect(ctx, s, start.Add(collectCounts)); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(ctx, c, s, optionsAt(t, start.Add(collectCounts))); err != nil {
		t.Fatal(err)
	}
	if problems, err := Verify(ctx, s, made.Name, nil); err != nil || len(problems) > 0 {
		t.Fatalf("%v, error %v", problems, err)
	}
}

// TestAllAtOnce runs creates, deletes and collections at once on one store. Whatever is refused, every backup that there
// is at any time is whole.
func TestAllAtOnce(t *testing.T) {
	s, c := memFolder(t), newCluster(2, 2)
	ctx := t.Context()
	var mu sync.Mutex
	made := 0
	allowed := func(err error) bool {
		busy, missing, store := (*BusyError)(nil), (*NotFoundError)(nil), (*StoreError)(nil)
		return err == nil || errors.As(err, &busy) || errors.As(err, &missing) || errors.As(err, &store)
	}
	var group sync.WaitGroup
	for worker := range 4 {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		group.Go(func() {
			for range 40 {
				switch random.IntN(4) {
				case 0, 1:
					c.write("n1", random.Uint32N(2), "000001.sst", fmt.Sprintf("text %d", random.IntN(4)))
					r, err := Create(ctx, c, s, Options{Spool: t.TempDir(), saveEvery: -1, sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
					if lost := (*ReplicasError)(nil); !allowed(err) && !errors.As(err, &lost) {
						t.Errorf("create: %v", err)
					}
					if err == nil {
						mu.Lock()
						made++
						mu.Unlock()
						problems, err := Verify(ctx, s, r.Name, nil)
						if _, still := Read(ctx, s, r.Name); still == nil && (err != nil || len(problems) > 0) {
							t.Errorf("%s: %v, error %v", r.Name, problems, err)
						}
					}
				case 2:
					if _, err := Keep(ctx, s, "c-1", 2); !allowed(err) {
						t.Errorf("keep: %v", err)
					}
				case 3:
					if _, err := Collect(ctx, s); !allowed(err) {
						t.Errorf("collect: %v", err)
					}
				}
			}
		})
	}
	group.Wait()
	names, err := Names(ctx, s)
	if err != nil || made < 3 {
		t.Fatalf("%d were made, error %v", made, err)
	}
	for _, name := range names {
		if problems, err := Verify(ctx, s, name, nil); err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, error %v", name, problems, err)
		}
	}
}
