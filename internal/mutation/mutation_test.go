package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A bug is one row of the table.
type bug struct {
	// file is the path of the source from the root of the repository. Its folder is the package under test.
	file string
	// rule says what the bug breaks.
	rule string
	// from occurs in file exactly once; to stands there instead.
	from, to string
	// tests are the names of those that must notice, separated by blanks.
	tests string
	// pkg is the package that holds tests, if it is not the file's own.
	pkg string
	// long: the tests notice only without -short.
	long bool
	// hangs, if not 0, says that a test which is not done after this time has noticed.
	hangs time.Duration
}

func (b bug) dir() string {
	if b.pkg != "" {
		return b.pkg
	}
	return path.Dir(b.file)
}

// table holds every row, in the order of the floors.
var table = slices.Concat(journalBugs, reductionBugs, graphBugs, recoveryBugs, entityBugs, machineBugs)

const (
	minBugs = 190
	// sample is about how many rows are planted with -short.
	sample = 6
	// atOnce is how many rows are tried at a time; each of them builds, which keeps a core busy.
	atOnce = 2
	// testTime bounds the tests of one row, buildTime all of it.
	testTime  = 2 * time.Minute
	buildTime = 5 * time.Minute
	// reserve is what is left of the time that the test binary has when no further row is begun: enough for
	// those under way. A machine that is too slow for all rows tries what it can, and says so.
	reserve = 2 * time.Minute
)

func TestPlantedBugs(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("internal/mutation has moved: %v", err)
	}
	look(t, root)

	var order []string
	byDir := map[string][]bug{}
	every := 1
	if testing.Short() {
		every = max(1, len(table)/sample)
	}
	for i, b := range table {
		if _, err := b.plant(root); err != nil {
			t.Error(err)
			continue
		}
		if i%every != 0 {
			continue
		}
		if !slices.Contains(order, b.dir()) {
			order = append(order, b.dir())
		}
		byDir[b.dir()] = append(byDir[b.dir()], b)
	}
	if len(table) < minBugs {
		t.Errorf("the table has %d rows, at least %d are to be", len(table), minBugs)
	}

	var planted, caught, left atomic.Int32
	slots := make(chan struct{}, atOnce)
	start := time.Now()
	end, bounded := t.Deadline()
	late := func() bool { return bounded && time.Until(end) < reserve }
	for _, dir := range order {
		t.Run(dir, func(t *testing.T) {
			if late() {
				left.Add(int32(len(byDir[dir])))
				return
			}
			without(t, root, dir, byDir[dir])
			for _, b := range byDir[dir] {
				t.Run(b.rule, func(t *testing.T) {
					t.Parallel()
					slots <- struct{}{}
					defer func() { <-slots }()
					if late() {
						left.Add(1)
						return
					}
					planted.Add(1)
					if v := b.try(t, root, testTime); v.is == noticed {
						caught.Add(1)
						t.Logf("caught by %s", v.by)
					} else {
						t.Error(b.complain(v))
					}
				})
			}
		})
	}
	if n := left.Load(); n > 0 {
		t.Logf("%d rows were not tried: only %v of the time of this run is left; -timeout gives it more", n, time.Until(end).Round(time.Second))
	}
	t.Logf("%d of %d planted bugs caught, in %.0f s; the table has %d", caught.Load(), planted.Load(), time.Since(start).Seconds(), len(table))
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

// without runs the tests that the rows name with no bug planted: if they fail anyway, they notice nothing.
func without(t *testing.T, root, dir string, bugs []bug) {
	for _, long := range []bool{false, true} {
		var tests []string
		for _, b := range bugs {
			if b.long == long {
				tests = append(tests, strings.Fields(b.tests)...)
			}
		}
		if len(tests) == 0 {
			continue
		}
		slices.Sort(tests)
		if v := run(t, root, dir, "", slices.Compact(tests), long, testTime); v.is != survived {
			t.Fatalf("with no bug planted: %s", v)
		}
	}
}

// plant returns the file with the bug in it, or what is wrong with the row.
func (b bug) plant(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.file)))
	if err != nil {
		return "", b.wrong("%v", err)
	}
	switch n := strings.Count(string(text), b.from); {
	case b.rule == "" || b.from == "" || b.from == b.to:
		return "", b.wrong("it changes nothing, or does not say what it breaks")
	case n == 0:
		return "", b.wrong("the snippet does not occur any more:\n%s", b.from)
	case n > 1:
		return "", b.wrong("the snippet occurs %d times:\n%s", n, b.from)
	}
	planted := strings.Replace(string(text), b.from, b.to, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), b.file, planted, parser.SkipObjectResolution); err != nil {
		return "", b.wrong("with the bug planted: %v", err)
	}
	known, err := testsOf(filepath.Join(root, filepath.FromSlash(b.dir())))
	if err != nil {
		return "", b.wrong("%v", err)
	}
	tests := strings.Fields(b.tests)
	if len(tests) == 0 {
		return "", b.wrong("it names no test")
	}
	for _, name := range tests {
		if !known[name] {
			return "", b.wrong("package %s has no test %s", b.dir(), name)
		}
	}
	return planted, nil
}

func (b bug) wrong(format string, args ...any) error {
	return fmt.Errorf("%s: row %q: %s", b.file, b.rule, fmt.Sprintf(format, args...))
}

func (b bug) complain(v verdict) string {
	return fmt.Sprintf("%s: %s\nthe bug: %s\n- %s\n+ %s\nnamed: %s", b.file, v, b.rule, b.from, b.to, b.tests)
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// testsOf lists the tests of a folder.
func testsOf(dir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
	}
	return known, nil
}

// try plants the bug and runs the tests that must notice, for at most limit or what the row allows.
func (b bug) try(t *testing.T, root string, limit time.Duration) verdict {
	planted, err := b.plant(root)
	if err != nil {
		return verdict{is: unusable, output: err.Error()}
	}
	dir := t.TempDir()
	copied := filepath.Join(dir, path.Base(b.file))
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root, filepath.FromSlash(b.file)): copied},
	})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	for name, text := range map[string]string{copied: planted, list: string(overlay)} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if b.hangs != 0 {
		limit = b.hangs
	}
	v := run(t, root, b.dir(), list, strings.Fields(b.tests), b.long, limit)
	if v.is == hung && b.hangs != 0 {
		v.is = noticed
	}
	return v
}

// run runs tests of one package, with an overlay if it names one.
func run(t *testing.T, root, dir, overlay string, tests []string, long bool, limit time.Duration) verdict {
	ctx, cancel := context.WithTimeout(t.Context(), buildTime+limit)
	defer cancel()
	// What is built is run once: to build it fast matters, how fast it runs does not.
	args := []string{"test", "-vet=off", "-gcflags=-N -l -dwarf=false", "-ldflags=-w", "-failfast", fmt.Sprintf("-short=%t", !long), "-timeout=" + limit.String(),
		"-run=^(" + strings.Join(tests, "|") + ")$"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	args = append(args, "./"+dir)
	if usesRapid(t, filepath.Join(root, filepath.FromSlash(dir))) {
		// The same draws every time, and no record of a failure in the package's testdata.
		args = append(args, "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.WaitDelay = 10 * time.Second
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("go %s: not done after %s\n%s", strings.Join(args, " "), buildTime+limit, tail(output))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return judge(string(output), err == nil)
}

func usesRapid(t *testing.T, dir string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), `"pgregory.net/rapid"`)
	})
}
