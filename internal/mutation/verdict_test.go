package mutation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module of its own and returns its root.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "module planted\n\ngo 1.25\n"
	for name, text := range files {
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
	return root
}

// The harness distinguishes the outcomes of a bug.
func TestVerdicts(t *testing.T) {
	root := module(t, map[string]string{
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
	})
	row := func(from, to, tests string) Bug {
		return Bug{File: "p/p.go", Rule: "a rule", From: from, To: to, Tests: tests}
	}
	with := func(b Bug, change func(*Bug)) Bug { change(&b); return b }

	for name, c := range map[string]struct {
		bug  Bug
		want ending
		by   string
	}{
		"caught by a subtest": {row("i < b", "i <= b", "TestAdd"), noticed, "TestAdd/some"},
		"caught by a panic":   {row("return a\n", `panic("no")`+"\n", "TestAdd"), noticed, "TestAdd/nothing"},
		"survives":            {row(`"name"`, `"other"`, "TestAdd"), survived, ""},
		"survives the short":  {row(`"name"`, `"other"`, "TestLong"), survived, ""},
		"caught by the long":  {with(row(`"name"`, `"other"`, "TestLong"), func(b *Bug) { b.Long = true }), noticed, "TestLong"},
		"does not compile":    {row("return a\n", "return \"a\"\n", "TestAdd"), unusable, ""},
		"hangs":               {row("i++", "i *= 1", "TestAdd"), hung, "TestAdd/some"},
		"may hang":            {with(row("i++", "i *= 1", "TestAdd"), func(b *Bug) { b.Hangs = 2 * time.Second }), noticed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			limit := testTime
			if c.want == hung {
				limit = 2 * time.Second
			}
			v := c.bug.try(t, root, limit)
			if v.is != c.want || !strings.HasPrefix(v.by, c.by) {
				t.Errorf("got %d %q, want %d %q\n%s", v.is, v.by, c.want, c.by, v)
			}
		})
	}

	for name, c := range map[string]struct {
		bug  Bug
		want string
	}{
		"gone":         {row("i > b", "i < b", "TestAdd"), "does not occur"},
		"twice":        {row("return ", "return 1+", "TestAdd"), "occurs 2 times"},
		"no file":      {Bug{File: "p/q.go"}, "no such file"},
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

// One build holds the bugs of all kinds of functions, and a run has the one that it chooses.
func TestTogether(t *testing.T) {
	root := module(t, map[string]string{
		"p/p.go": `package p

type number int

func (number) Name() string { return "number" }

func (_ number) Twice(n int, _ string) int { return 2 * n }

func Second(string, ...int) int { return 2 }

func Sum(all ...int) (sum int) {
	for _, n := range all {
		sum += n
	}
	return sum
}

func Zero[T any, _ any](_ *T) int {
	return 0
}

// Last follows another.
func Last() int { return 9 }

var Table = []int{1, 2, 3}
`,
		"p/p_test.go": `package p

import "testing"

func TestAll(t *testing.T) {
	switch {
	case number(1).Name() != "number", number(1).Twice(2, "") != 4, Second("", 1) != 2, Sum(1, 2) != 3,
		Zero[int, string](nil) != 0, Last() != 9, len(Table) != 3:
		t.Error("wrong")
	}
}
`,
	})
	var rows []Bug
	for _, r := range [][2]string{
		{`"number"`, `"other"`},
		{"2 * n", "3 * n"},
		{"{ return 2 }", "{ return 3 }"},
		{"sum += n", "sum -= n"},
		{"\treturn 0\n}\n\n// Last", "\treturn 1\n}\n\n// Last"},
		{"func Last() int { return 9 }", "func Last() int { return 99 }"},
		{"1, 2, 3", "1, 2"},
	} {
		rows = append(rows, Bug{File: "p/p.go", Rule: "a rule", From: r[0], To: r[1], Tests: "TestAll"})
	}
	in := together(t, root, "p", rows)
	if in == nil || len(in.numbers) != len(rows)-1 || in.numbers[len(rows)-1] != 0 {
		t.Fatalf("all but the last are built together: %+v", in)
	}
	if v := in.run(t, "p", 0, []string{"TestAll"}, false, testTime); v.is != survived {
		t.Errorf("with no bug: %s", v)
	}
	for i, b := range rows[:len(rows)-1] {
		if v := in.run(t, "p", in.numbers[i], []string{"TestAll"}, false, testTime); v.is != noticed {
			t.Errorf("%s: %s", b.From, v)
		}
	}
}
