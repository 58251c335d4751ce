package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Most of the time of a row goes into building and linking a test binary. So the rows of one package are planted
// together where that can be: each function that a row changes is there twice, and its first statement chooses
//
//	if plantedBug == 7 {
//		return f__7(args)
//	}
//
// by a number in the environment. A row that changes something else than one function's body is built by itself.

// chosen is the variable in the environment that has the number of the bug, and the name of the one in the code.
const (
	chosen     = "PERDURE_PLANTED_BUG"
	chosenName = "plantedBugOfThisRun"
)

// A binary is the tests of a package with several bugs in it, of which a run chooses one.
type binary struct {
	path string
	dir  string // of the package
	// numbers are those of the rows that are in it, by their index in the list that it was built from.
	numbers map[int]int
}

// span is a piece of a text.
type span struct{ from, to int }

// function is a function's position in a file's text, and how it is called from its own first statement.
type function struct {
	whole, name, body span
	call              string // with %s for the name
	void              bool
}

// functions lists a file's functions that have a twin when one is needed: with a body, and parameters that can be
// handed on.
func functions(text string) ([]function, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	var out []function
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || f.Type.TypeParams != nil || f.Name.Name == "init" || f.Name.Name == "main" {
			continue
		}
		var args []string
		named := true
		for _, p := range f.Type.Params.List {
			named = named && len(p.Names) > 0
			for _, n := range p.Names {
				named = named && n.Name != "_"
				arg := n.Name
				if _, variadic := p.Type.(*ast.Ellipsis); variadic {
					arg += "..."
				}
				args = append(args, arg)
			}
		}
		call := "%s(" + strings.Join(args, ", ") + ")"
		if f.Recv != nil {
			r := f.Recv.List[0]
			named = named && len(r.Names) == 1 && r.Names[0].Name != "_"
			if named {
				call = r.Names[0].Name + "." + call
			}
		}
		if !named {
			continue
		}
		out = append(out, function{
			whole: span{at(f.Pos()), at(f.End())}, name: span{at(f.Name.Pos()), at(f.Name.End())},
			body: span{at(f.Body.Lbrace), at(f.Body.Rbrace)}, call: call, void: f.Type.Results == nil,
		})
	}
	return out, nil
}

// together plants the rows of one package that can be planted together, and builds its tests. It answers nil when
// there are too few of them, or when they do not build together.
func together(t *testing.T, root, dir string, rows []Bug) *binary {
	if len(rows) < 2 {
		return nil
	}
	byFile := map[string][]int{}
	for i, b := range rows {
		byFile[b.File] = append(byFile[b.File], i)
	}
	made := t.TempDir()
	replace := map[string]string{}
	write := func(at, text string) {
		copied := filepath.Join(made, strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace[at] = copied
	}
	out := &binary{path: filepath.Join(made, "tests"), dir: filepath.Join(root, filepath.FromSlash(dir)), numbers: map[int]int{}}
	packages := map[string]string{} // by folder
	for name, all := range byFile {
		file := filepath.Join(root, filepath.FromSlash(name))
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		fs, err := functions(text)
		if err != nil {
			t.Fatal(err)
		}
		guards := map[int]string{} // by their position
		twins := ""
		for _, i := range all {
			b := rows[i]
			from := strings.Index(text, b.From)
			at := slices.IndexFunc(fs, func(f function) bool { return f.body.from < from && from+len(b.From) <= f.body.to })
			if from < 0 || at < 0 {
				continue
			}
			f := fs[at]
			number := i + 1
			twin := fmt.Sprintf("%s__%d", text[f.name.from:f.name.to], number)
			call := fmt.Sprintf(f.call, twin)
			if f.void {
				guards[f.body.from+1] += fmt.Sprintf(" if %s == %d { %s; return };", chosenName, number, call)
			} else {
				guards[f.body.from+1] += fmt.Sprintf(" if %s == %d { return %s };", chosenName, number, call)
			}
			twins += "\n" + text[f.whole.from:f.name.from] + twin + text[f.name.to:from] + b.To + text[from+len(b.From):f.whole.to] + "\n"
			out.numbers[i] = number
		}
		if twins == "" {
			continue
		}
		places := make([]int, 0, len(guards))
		for at := range guards {
			places = append(places, at)
		}
		sort.Sort(sort.Reverse(sort.IntSlice(places)))
		planted := text
		for _, at := range places {
			planted = planted[:at] + guards[at] + planted[at:]
		}
		write(file, planted+twins)
		of, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		packages[filepath.Dir(file)] = of.Name.Name
	}
	if len(out.numbers) < 2 {
		return nil
	}
	for folder, name := range packages {
		write(filepath.Join(folder, "planted_bug_of_this_run.go"),
			"package "+name+"\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar "+chosenName+", _ = strconv.Atoi(os.Getenv(\""+chosen+"\"))\n")
	}
	list := filepath.Join(made, "overlay.json")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), buildTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(buildArgs("test"), "-c", "-o="+out.path, "-overlay="+list, "./"+dir)...)
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Logf("the rows of %s are built one by one, since they do not build together: %v\n%s", dir, err, tail(output))
		return nil
	}
	return out
}

// run runs tests of the binary with one of its bugs, or with none if number is 0.
func (o *binary) run(t *testing.T, dir string, number int, tests []string, long bool, limit time.Duration) verdict {
	ctx, cancel := context.WithTimeout(t.Context(), buildTime+limit)
	defer cancel()
	args := []string{"-test.failfast", fmt.Sprintf("-test.short=%t", !long), "-test.timeout=" + limit.String(), "-test.run=^(" + strings.Join(tests, "|") + ")$"}
	args = append(args, rapidArgs(t, o.dir)...)
	cmd := exec.CommandContext(ctx, o.path, args...)
	cmd.Dir = o.dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", chosen, number))
	cmd.WaitDelay = 10 * time.Second
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s %s: not done after %s\n%s", o.path, strings.Join(args, " "), buildTime+limit, tail(output))
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		// `go test` adds these lines to the output of a binary that ran.
		output = append(output, []byte("\nFAIL\t"+dir+"\t0.0s\n")...)
	default:
		t.Fatalf("%s: %v", o.path, err)
	}
	return verdictOf(string(output), err == nil)
}
