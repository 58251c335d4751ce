package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Bug is one row of a table.
type Bug struct {
	// File is the path of the source from the root of the repository. Its folder is the package under test.
	File string
	// Rule says what the bug breaks.
	Rule string
	// From occurs in file exactly once; to replaces it.
	From, To string
	// Tests are the names of those that must notice, separated by blanks.
	Tests string
	// Pkg is the package that holds tests, if it is not the file's own.
	Pkg string
	// Long: the tests notice only without -short.
	Long bool
	// Hangs, if not 0, says that a test which is not done after this time has noticed.
	Hangs time.Duration
}

func (b Bug) dir() string {
	if b.Pkg != "" {
		return b.Pkg
	}
	return path.Dir(b.File)
}

const (
	// buildsAtOnce, runsAtOnce and hangsAtOnce bound the go commands, the test binaries, and those of rows
	// that may hang.
	buildsAtOnce, runsAtOnce, hangsAtOnce = 2, 3, 12
	// AtOnce is how many rows are under way at a time; most of them wait for one of the slots above.
	AtOnce = 64
	// testTime bounds the tests of one row, wholeTime those of all rows of a folder, buildTime all of it.
	testTime  = 2 * time.Minute
	wholeTime = 8 * time.Minute
	buildTime = 5 * time.Minute
	// reserve is what is left of the time that the test binary has when no further row is begun: enough for
	// those under way. A machine that is too slow for all rows tries what it can, and reports that.
	reserve = 2 * time.Minute
)

// Root returns the root of the repository, for a test two folders below this one's.
func Root(t *testing.T) string {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the tables have moved: %v", err)
	}
	return root
}

// Check returns the rows that fit the source. Every other row is an error, and so is a table of fewer than
// least rows.
func Check(t *testing.T, root string, rows []Bug, least int) (fit []Bug) {
	for _, b := range rows {
		if _, err := b.plant(root); err != nil {
			t.Error(err)
			continue
		}
		fit = append(fit, b)
	}
	if len(rows) < least {
		t.Errorf("the table has %d rows, at least %d are to be", len(rows), least)
	}
	return fit
}

// TryAll plants each row and has the tests run that must notice it. It answers how many rows there was no time for.
// Folders are tried side by side, as far as -parallel allows: TestMain calls testkit.WaitingTests(AtOnce).
func TryAll(t *testing.T, root string, rows []Bug) (untried int) {
	var order []string
	byDir := map[string][]Bug{}
	for _, b := range rows {
		if !slices.Contains(order, b.dir()) {
			order = append(order, b.dir())
		}
		byDir[b.dir()] = append(byDir[b.dir()], b)
	}
	// The folder with most rows decides when all is done: it begins first.
	slices.SortStableFunc(order, func(a, b string) int { return len(byDir[b]) - len(byDir[a]) })
	e := &effort{builds: make(chan struct{}, buildsAtOnce), runs: make(chan struct{}, runsAtOnce), hangs: make(chan struct{}, hangsAtOnce)}
	start := time.Now()
	e.end, e.bounded = t.Deadline()
	t.Run("all", func(t *testing.T) {
		for _, dir := range order {
			t.Run(dir, func(t *testing.T) {
				t.Parallel()
				e.tryFolder(t, root, dir, byDir[dir])
			})
		}
	})
	if n := e.left.Load(); n > 0 {
		t.Logf("%d rows were not tried: only %v of the time of this run is left; -timeout gives it more", n, time.Until(e.end).Round(time.Second))
	}
	t.Logf("%d of %d planted bugs caught, in %.0f s", e.caught.Load(), e.planted.Load(), time.Since(start).Seconds())
	return int(e.left.Load())
}

// effort is shared by the folders of one TryAll: the bounds of concurrent work, and the count of rows.
type effort struct {
	// builds keep a core busy each; runs wait for nodes about half of their time; hangs wait for their end.
	builds, runs, hangs   chan struct{}
	end                   time.Time
	bounded               bool
	planted, caught, left atomic.Int32
}

func (e *effort) late() bool { return e.bounded && time.Until(e.end) < reserve }

// occupy takes one of the slots until its result is called.
func occupy(slots chan struct{}) (leave func()) {
	slots <- struct{}{}
	return func() { <-slots }
}

// tryFolder tries the rows whose tests are in one folder.
func (e *effort) tryFolder(t *testing.T, root, dir string, bugs []Bug) {
	if e.late() {
		e.left.Add(int32(len(bugs)))
		return
	}
	leave := occupy(e.builds)
	tests := together(t, root, dir, bugs)
	leave()
	t.Run("no bug planted", func(t *testing.T) {
		t.Parallel()
		if tests == nil {
			defer occupy(e.builds)()
		} else {
			defer occupy(e.runs)()
		}
		without(t, root, dir, tests, bugs)
	})
	for i, b := range bugs {
		t.Run(b.Rule, func(t *testing.T) {
			t.Parallel()
			switch {
			case tests == nil || tests.numbers[i] == 0:
				defer occupy(e.builds)()
			case b.Hangs != 0:
				defer occupy(e.hangs)()
			default:
				defer occupy(e.runs)()
			}
			if e.late() {
				e.left.Add(1)
				return
			}
			e.planted.Add(1)
			began := time.Now()
			v := b.tryIn(t, root, tests, i, testTime)
			switch v.is {
			case noticed:
			case hung:
				// The folder's run without a bug fails if the tests hang anyway.
				t.Logf("slow: the tests hang for %v, and would fail go test", testTime)
			default:
				t.Error(b.complain(v))
				return
			}
			e.caught.Add(1)
			how := "in the folder's binary"
			if tests == nil || tests.numbers[i] == 0 {
				how = "with a build of its own"
			}
			t.Logf("caught by %s in %.1f s, %s", v.by, time.Since(began).Seconds(), how)
		})
	}
}

// without runs the tests that the rows name with no bug planted: if they fail anyway, they notice nothing.
func without(t *testing.T, root, dir string, in *binary, bugs []Bug) {
	for _, long := range []bool{false, true} {
		var tests []string
		for _, b := range bugs {
			if b.Long == long {
				tests = append(tests, strings.Fields(b.Tests)...)
			}
		}
		if len(tests) == 0 {
			continue
		}
		slices.Sort(tests)
		var v verdict
		if in != nil {
			v = in.run(t, dir, 0, slices.Compact(tests), long, wholeTime)
		} else {
			v = run(t, root, dir, "", slices.Compact(tests), long, wholeTime)
		}
		if v.is != survived {
			t.Fatalf("with no bug planted: %s", v)
		}
	}
}

// plant returns the file with the bug in it, or what is wrong with the row.
func (b Bug) plant(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.File)))
	if err != nil {
		return "", b.wrong("%v", err)
	}
	switch n := strings.Count(string(text), b.From); {
	case b.Rule == "" || b.From == "" || b.From == b.To:
		return "", b.wrong("it changes nothing, or does not say what it breaks")
	case n == 0:
		return "", b.wrong("the snippet does not occur any more:\n%s", b.From)
	case n > 1:
		return "", b.wrong("the snippet occurs %d times:\n%s", n, b.From)
	}
	planted := strings.Replace(string(text), b.From, b.To, 1)
	if _, err := parser.ParseFile(token.NewFileSet(), b.File, planted, parser.SkipObjectResolution); err != nil {
		return "", b.wrong("with the bug planted: %v", err)
	}
	known, err := testsOf(filepath.Join(root, filepath.FromSlash(b.dir())))
	if err != nil {
		return "", b.wrong("%v", err)
	}
	tests := strings.Fields(b.Tests)
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

func (b Bug) wrong(format string, args ...any) error {
	return fmt.Errorf("%s: row %q: %s", b.File, b.Rule, fmt.Sprintf(format, args...))
}

func (b Bug) complain(v verdict) string {
	return fmt.Sprintf("%s: %s\nthe bug: %s\n- %s\n+ %s\nnamed: %s", b.File, v, b.Rule, b.From, b.To, b.Tests)
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// knownTests are the tests of the folders that testsOf has read.
var knownTests struct {
	sync.Mutex
	of map[string]map[string]bool
}

// testsOf lists the tests of a folder. It reads each folder once: most rows name one of few.
func testsOf(dir string) (map[string]bool, error) {
	knownTests.Lock()
	defer knownTests.Unlock()
	if known, read := knownTests.of[dir]; read {
		return known, nil
	}
	known, err := readTests(dir)
	if err != nil {
		return nil, err
	}
	if knownTests.of == nil {
		knownTests.of = map[string]map[string]bool{}
	}
	knownTests.of[dir] = known
	return known, nil
}

func readTests(dir string) (map[string]bool, error) {
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

// tryIn is try with the binary of its package, if the bug is in that: it is the i-th of its rows.
func (b Bug) tryIn(t *testing.T, root string, in *binary, i int, limit time.Duration) verdict {
	if in == nil || in.numbers[i] == 0 {
		return b.try(t, root, limit)
	}
	if b.Hangs != 0 {
		limit = b.Hangs
	}
	v := in.run(t, b.dir(), in.numbers[i], strings.Fields(b.Tests), b.Long, limit)
	if v.is == hung && b.Hangs != 0 {
		v.is = noticed
	}
	return v
}

// try plants the bug and runs the tests that must notice, for at most limit or what the row allows.
func (b Bug) try(t *testing.T, root string, limit time.Duration) verdict {
	planted, err := b.plant(root)
	if err != nil {
		return verdict{is: unusable, output: err.Error()}
	}
	dir := t.TempDir()
	copied := filepath.Join(dir, path.Base(b.File))
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root, filepath.FromSlash(b.File)): copied},
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
	if b.Hangs != 0 {
		limit = b.Hangs
	}
	v := run(t, root, b.dir(), list, strings.Fields(b.Tests), b.Long, limit)
	if v.is == hung && b.Hangs != 0 {
		v.is = noticed
	}
	return v
}

// run runs tests of one package, with an overlay if it names one.
func run(t *testing.T, root, dir, overlay string, tests []string, long bool, limit time.Duration) verdict {
	ctx, cancel := context.WithTimeout(t.Context(), buildTime+limit)
	defer cancel()
	args := append(buildArgs("test"), "-failfast", fmt.Sprintf("-short=%t", !long), "-timeout="+limit.String(),
		"-run=^("+strings.Join(tests, "|")+")$")
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	args = append(args, "./"+dir)
	args = append(args, rapidArgs(t, filepath.Join(root, filepath.FromSlash(dir)))...)
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
	return verdictOf(string(output), err == nil)
}

// buildArgs are the arguments of a go command that builds tests. A built binary runs a few times at most, so
// the arguments make the build fast, not the run.
func buildArgs(command string) []string {
	return []string{command, "-vet=off", "-gcflags=-N -l -dwarf=false", "-ldflags=-w"}
}

// rapidArgs are those of tests that use rapid: the same draws every time, and no record of a failure in the package's
// testdata.
func rapidArgs(t *testing.T, dir string) []string {
	if !usesRapid(t, dir) {
		return nil
	}
	return []string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ms"}
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
