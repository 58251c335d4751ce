package rules

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"perdure/internal/mutation"
)

// table holds every row, in the order of the floors.
var table = slices.Concat(journalBugs, reductionBugs, graphBugs, recoveryBugs, entityBugs, machineBugs)

const (
	minBugs = 190
	// sample is about how many rows are planted with -short.
	sample = 6
)

func TestPlantedBugs(t *testing.T) {
	root := mutation.Root(t)
	look(t, root)
	rows := mutation.Check(t, root, table, minBugs)
	if testing.Short() {
		every := max(1, len(rows)/sample)
		var some []mutation.Bug
		for i := 0; i < len(rows); i += every {
			some = append(some, rows[i])
		}
		rows = some
	}
	mutation.TryAll(t, root, rows)
	t.Logf("the table has %d rows", len(table))
}

// look reads the folders that the rows are built from: the result of a test is kept until a file that it
// has looked at changes, and what is built here is looked at by another process.
func look(t *testing.T, root string) {
	for _, dir := range []string{"api", "id", "journal", "recovery", "reduction", "graph", "entity", "fsm"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
