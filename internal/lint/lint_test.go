package lint

import (
	"os"
	"path/filepath"
	"testing"
)

// root is the folder of go.mod, seen from this package.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("internal/lint has moved: %v", err)
	}
	return dir
}

func report(t *testing.T, fs []finding) {
	t.Helper()
	for _, f := range ordered(fs) {
		t.Error(f)
	}
}

// TestRepository holds every law against the repository, one subtest per law.
func TestRepository(t *testing.T) {
	dir := root(t)
	repo, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(repo.goFiles()); n < 10 {
		t.Fatalf("found only %d Go files under %s", n, dir)
	}
	report(t, repo.problems)

	for law, check := range map[string]func(*tree) []finding{
		"floors":     func(r *tree) []finding { return checkFloors(r, table) },
		"comments":   checkComments,
		"length":     checkLength,
		"marks":      checkMarks,
		"sleep":      checkSleep,
		"goroutines": checkGoroutines,
	} {
		t.Run(law, func(t *testing.T) { report(t, check(repo)) })
	}

	t.Run("pure", func(t *testing.T) {
		dirs := pureDirs(repo, table)
		units, problems, err := loadUnits(dir, dirs)
		if err != nil {
			t.Fatal(err)
		}
		report(t, problems)
		if len(units)+len(problems) < len(dirs) {
			t.Errorf("checked %d packages of %d", len(units), len(dirs))
		}
		for _, u := range units {
			report(t, checkPure(u, pureExceptions[u.dir]))
		}
	})

	t.Run("clock", func(t *testing.T) {
		dirs := clockDirs(repo, table)
		units, problems, err := loadUnits(dir, dirs)
		if err != nil {
			t.Fatal(err)
		}
		report(t, problems)
		if len(units) == 0 || len(units)+len(problems) < len(dirs) {
			t.Errorf("checked %d packages of %d", len(units), len(dirs))
		}
		for _, u := range units {
			report(t, checkClock(u))
		}
	})

	t.Run("dependencies", func(t *testing.T) {
		mod, err := readGoMod(dir)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "ARCHITECTURE.md"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		report(t, checkDependencies(mod, text))
	})

	t.Run("examples", func(t *testing.T) {
		report(t, checkExamples(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))) }))
	})
}

// write puts a file under dir, with the folders it needs.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
