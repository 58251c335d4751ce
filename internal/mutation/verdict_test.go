package mutation

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// ending is how the tests of one row came out.
type ending int

const (
	noticed  ending = iota // a test failed
	survived               // all passed
	hung                   // they did not come to an end
	unusable               // there was nothing to run
)

type verdict struct {
	is ending
	// by is the test that failed or hung.
	by string
	// output is the end of what was printed.
	output string
}

func (v verdict) String() string {
	switch v.is {
	case noticed:
		return "fails: " + v.by + "\n" + v.output
	case survived:
		return "survived: the tests pass"
	case hung:
		return "hangs: " + v.by
	}
	return "does not compile or does not run:\n" + v.output
}

var (
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	stopped  = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*`)
	ran      = regexp.MustCompile(`(?m)^FAIL\t\S+\t[\d.]+s$`)
	timedOut = regexp.MustCompile(`(?m)^panic: test timed out after.*\n(?:\s*running tests:\n)?((?:\s+\S+ \(\d.*\n)*)`)
)

// judge reads what `go test` of one package has printed.
func judge(output string, passed bool) verdict {
	v := verdict{output: tail([]byte(output))}
	late := timedOut.FindStringSubmatch(output)
	switch {
	case passed && strings.Contains(output, "no tests to run"):
		v.is = unusable
	case passed:
		v.is = survived
	case !ran.MatchString(output):
		v.is = unusable
	case late != nil:
		v.is = hung
		if running := strings.Fields(late[1]); len(running) > 1 {
			v.by = running[len(running)-2] // a name and its time; a subtest stands below its test
		}
	default:
		v.is, v.by = noticed, innermost(output)
	}
	return v
}

// innermost is the name of the first test that failed, down to the subtest.
func innermost(output string) string {
	name := ""
	for _, m := range failed.FindAllStringSubmatch(output, -1) {
		if name == "" || strings.HasPrefix(m[1], name+"/") {
			name = m[1]
		}
	}
	if name == "" {
		name = stopped.FindString(output)
	}
	return name
}

// tail is the end of an output, which is where a failure is told.
func tail(output []byte) string {
	const enough = 4000
	if len(output) > enough {
		output = output[len(output)-enough:]
	}
	return strings.TrimSpace(string(output))
}

// The harness tells apart what becomes of a bug, in a module of its own.
func TestVerdicts(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module planted\n\ngo 1.25\n",
		"p/p.go": `package p

func Add(a, b int) int {
	for i := 0; i < b; i++ {
		a++
	}
	return a
}

func Name() string { return "name" }
`,
		"p/p_test.go": `package p

import "testing"

func TestAdd(t *testing.T) {
	t.Run("nothing", func(t *testing.T) { Add(1, 0) })
	t.Run("some", func(t *testing.T) {
		if Add(1, 2) != 3 {
			t.Error("wrong")
		}
	})
}

func TestLong(t *testing.T) {
	if !testing.Short() && Name() != "name" {
		t.Error("wrong")
	}
}
`,
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	row := func(from, to, tests string) bug {
		return bug{file: "p/p.go", rule: "a rule", from: from, to: to, tests: tests}
	}
	with := func(b bug, change func(*bug)) bug { change(&b); return b }

	for name, c := range map[string]struct {
		bug  bug
		want ending
		by   string
	}{
		"caught by a subtest": {row("i < b", "i <= b", "TestAdd"), noticed, "TestAdd/some"},
		"caught by a panic":   {row("return a\n", `panic("no")`+"\n", "TestAdd"), noticed, "TestAdd/nothing"},
		"survives":            {row(`"name"`, `"other"`, "TestAdd"), survived, ""},
		"survives the short":  {row(`"name"`, `"other"`, "TestLong"), survived, ""},
		"caught by the long":  {with(row(`"name"`, `"other"`, "TestLong"), func(b *bug) { b.long = true }), noticed, "TestLong"},
		"does not compile":    {row("return a\n", "return \"a\"\n", "TestAdd"), unusable, ""},
		"hangs":               {row("i++", "i *= 1", "TestAdd"), hung, "TestAdd/some"},
		"may hang":            {with(row("i++", "i *= 1", "TestAdd"), func(b *bug) { b.hangs = 2 * time.Second }), noticed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			limit := testTime
			if c.want == hung {
				limit = 2 * time.Second
			}
			v := c.bug.try(t, root, limit)
			if v.is != c.want || !strings.HasPrefix(v.by, c.by) {
				t.Errorf("judged %d %q, want %d %q\n%s", v.is, v.by, c.want, c.by, v)
			}
		})
	}

	for name, c := range map[string]struct {
		bug  bug
		want string
	}{
		"gone":         {row("i > b", "i < b", "TestAdd"), "does not occur"},
		"twice":        {row("return ", "return 1+", "TestAdd"), "occurs 2 times"},
		"no file":      {bug{file: "p/q.go"}, "no such file"},
		"no change":    {row("i < b", "i < b", "TestAdd"), "changes nothing"},
		"no Go":        {row("i < b", "i <", "TestAdd"), "expected"},
		"no test":      {row("i < b", "i <= b", ""), "names no test"},
		"other's test": {row("i < b", "i <= b", "TestAdd TestSub"), "no test TestSub"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.bug.plant(root); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("plant says %v, want %q", err, c.want)
			}
		})
	}
}
