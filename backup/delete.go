package backup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Delete deletes a backup, or a partial of that name. Its files stay until Collect. It does not read the manifest, which
// may be damaged. Errors: *NotFoundError if there is neither; *BusyError while the partial's create runs.
func Delete(ctx context.Context, store Store, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	var objects []string
	partials, err := readPartials(ctx, store)
	if err != nil {
		return err
	}
	for _, p := range partials {
		if p.Name == name {
			if err := p.running(time.Now()); err != nil {
				return err
			}
			objects = append(objects, p.object())
		}
	}
	manifest := backupsPrefix + name + jsonSuffix
	_, exists, err := store.Exists(ctx, manifest)
	if err != nil {
		return err
	}
	if exists {
		objects = append(objects, manifest)
	}
	if len(objects) == 0 {
		return &NotFoundError{"backup", name}
	}
	for _, object := range objects {
		if err := store.Delete(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// Keep deletes all backups of a cluster but the newest n, and returns their names. It leaves a damaged manifest and
// the backups of other clusters alone.
func Keep(ctx context.Context, store Store, cluster string, n int) (deleted []string, err error) {
	if n < 1 {
		return nil, fmt.Errorf("keeping %d backups: must be at least 1", n)
	}
	all, err := Names(ctx, store)
	if err != nil {
		return nil, err
	}
	var own []string
	for _, name := range all {
		m, err := Read(ctx, store, name)
		switch damaged, missing := (*DamagedError)(nil), (*NotFoundError)(nil); {
		case errors.As(err, &damaged), errors.As(err, &missing):
		case err != nil:
			return nil, err
		case m.Cluster == cluster:
			own = append(own, name)
		}
	}
	for _, name := range own[:max(0, len(own)-n)] {
		if err := Delete(ctx, store, name); err != nil {
			return deleted, err
		}
		deleted = append(deleted, name)
	}
	return deleted, nil
}

// Collected is what a collection deleted.
type Collected struct {
	Files int
	Bytes int64
}

// Collect deletes the files that no manifest names. Errors: *BusyError while a create has not ended or another
// collection runs; *DamagedError if a manifest cannot be read, for its files are unknown. Repeating it is safe.
func Collect(ctx context.Context, store Store) (Collected, error) {
	return collect(ctx, store, time.Now())
}

func collect(ctx context.Context, store Store, now time.Time) (done Collected, err error) {
	ctx, cancel := context.WithTimeout(ctx, collectWithin)
	defer cancel()
	mark := collectPrefix + now.UTC().Format(nameLayout) + "-" + randomText()
	if err := putBytes(ctx, store, mark, []byte(now.UTC().Format(time.RFC3339))); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, store.Delete(context.WithoutCancel(ctx), mark)) }()
	// From here on no create begins. One that began before has a partial.
	other, err := collecting(ctx, store, mark, now)
	if err != nil {
		return done, err
	}
	if other != "" {
		return done, collectingError(other)
	}
	begun, err := readPartials(ctx, store)
	if err != nil {
		return done, err
	}
	if len(begun) > 0 {
		return done, &BusyError{fmt.Sprintf("backup %s is being made, or was interrupted", begun[0].Name)}
	}
	used, err := usedFiles(ctx, store)
	if err != nil {
		return done, err
	}
	files, err := store.List(ctx, filesPrefix)
	if err != nil {
		return done, err
	}
	for _, f := range files {
		if used[f.Name] {
			continue
		}
		if err := store.Delete(ctx, f.Name); err != nil {
			return done, err
		}
		done.Files++
		done.Bytes += f.Size
	}
	return done, nil
}

// usedFiles are the objects that some manifest names.
func usedFiles(ctx context.Context, store Store) (map[string]bool, error) {
	all, err := Names(ctx, store)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, name := range all {
		m, err := Read(ctx, store, name)
		if missing := (*NotFoundError)(nil); errors.As(err, &missing) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, s := range m.States {
			for _, f := range s.all() {
				used[f.Object()] = true
			}
		}
	}
	return used, nil
}
