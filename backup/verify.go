package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Problem is an object of a backup that is not what was written.
type Problem struct {
	Object, Detail string
	// Uses are the files of states that the object is, such as "partition 3, file 000012.sst"; none of the manifest.
	Uses []string
}

func (p Problem) String() string {
	if len(p.Uses) == 0 {
		return p.Object + ": " + p.Detail
	}
	return fmt.Sprintf("%s (%s): %s", p.Object, strings.Join(p.Uses, "; "), p.Detail)
}

// Verify reads every file of a backup and returns those that are damaged or missing, in the order of their use. A
// damaged manifest is the one problem, because it cannot say what the files are. checked, if not nil, is called with the
// bytes read so far and their sum. The error is a *NotFoundError, or the store's.
func Verify(ctx context.Context, store Store, name string, checked func(done, all int64)) ([]Problem, error) {
	m, err := Read(ctx, store, name)
	if damaged := (*DamagedError)(nil); errors.As(err, &damaged) {
		return []Problem{{Object: damaged.Object, Detail: damaged.Detail}}, nil
	}
	if err != nil {
		return nil, err
	}
	files, uses := objects(m)
	all, done := int64(0), int64(0)
	for _, f := range files {
		all += f.Size
	}
	var problems []Problem
	for _, f := range files {
		err := readObject(ctx, store, f, io.Discard)
		damaged, missing := (*DamagedError)(nil), (*NotFoundError)(nil)
		switch {
		case ctx.Err() != nil:
			return problems, ctx.Err()
		case errors.As(err, &damaged):
			problems = append(problems, Problem{f.Object(), damaged.Detail, uses[f]})
		case errors.As(err, &missing):
			problems = append(problems, Problem{f.Object(), "it is missing", uses[f]})
		case err != nil:
			return problems, fmt.Errorf("%s: %w", f.Object(), err)
		}
		done += f.Size
		if checked != nil {
			checked(done, all)
		}
	}
	return problems, nil
}

// objects returns each file of a manifest once, without its name, and where it is used.
func objects(m *Manifest) (files []File, uses map[File][]string) {
	uses = map[File][]string{}
	for _, s := range m.States {
		for _, f := range s.all() {
			use := fmt.Sprintf("partition %d, file %s", s.Partition, f.Name)
			f.Name = ""
			if uses[f] == nil {
				files = append(files, f)
			}
			uses[f] = append(uses[f], use)
		}
	}
	return slices.Clip(files), uses
}

// Discard deletes damaged files, so that the next create copies them again. What they belonged to stays damaged.
func Discard(ctx context.Context, store Store, problems []Problem) error {
	for _, p := range problems {
		if strings.HasPrefix(p.Object, filesPrefix) {
			if err := store.Delete(ctx, p.Object); err != nil {
				return err
			}
		}
	}
	return nil
}
