package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

const (
	// chosen is the variable in the environment that has the number of the bug, chosenName the one in the code.
	chosen     = "PERDURE_PLANTED_BUG"
	chosenName = "plantedBugOfThisRun"
	// unnamed begins the names of parameters that have none, so that a function can hand them to its twin.
	unnamed = "unnamedOfThisRun"
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
	// naming are the names that the function's receiver and parameters lack, by where they go.
	naming map[span]string
}

// functions lists a file's functions that have a twin when one is needed: all that have a body and can be called.
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
		if !ok || f.Body == nil || f.Name.Name == "init" || f.Name.Name == "main" {
			continue
		}
		naming := map[span]string{}
		// nameOf returns what a parameter is called in the function's body, or will be.
		nameOf := func(n *ast.Ident) string {
			if n.Name != "_" {
				return n.Name
			}
			name := unnamed + strconv.Itoa(len(naming))
			naming[span{at(n.Pos()), at(n.End())}] = name
			return name
		}
		namesOf := func(p *ast.Field) (names []string) {
			for _, n := range p.Names {
				names = append(names, nameOf(n))
			}
			if len(p.Names) == 0 {
				names = []string{unnamed + strconv.Itoa(len(naming))}
				naming[span{at(p.Type.Pos()), at(p.Type.Pos())}] = names[0] + " "
			}
			return names
		}
		var args []string
		for _, p := range f.Type.Params.List {
			for _, name := range namesOf(p) {
				if _, variadic := p.Type.(*ast.Ellipsis); variadic {
					name += "..."
				}
				args = append(args, name)
			}
		}
		call := "%s"
		if f.Type.TypeParams != nil {
			var types []string
			for _, p := range f.Type.TypeParams.List {
				types = append(types, namesOf(p)...)
			}
			call += "[" + strings.Join(types, ", ") + "]"
		}
		call += "(" + strings.Join(args, ", ") + ")"
		if f.Recv != nil {
			call = namesOf(f.Recv.List[0])[0] + "." + call
		}
		out = append(out, function{
			whole: span{at(f.Pos()), at(f.End())}, name: span{at(f.Name.Pos()), at(f.Name.End())},
			body: span{at(f.Body.Lbrace), at(f.Body.Rbrace)}, call: call, void: f.Type.Results == nil, naming: naming,
		})
	}
	return out, nil
}

// change returns the part of the file's text that the bug changes, and what is there then: a snippet often begins or ends
// with text that only makes it unique.
func (b Bug) change(text string) (span, string) {
	same := 0
	for same < min(len(b.From), len(b.To)) && b.From[same] == b.To[same] {
		same++
	}
	from, to := b.From[same:], b.To[same:]
	end := 0
	for end < min(len(from), len(to)) && from[len(from)-1-end] == to[len(to)-1-end] {
		end++
	}
	begin := strings.Index(text, b.From) + same
	return span{begin, begin + len(from) - end}, to[:len(to)-end]
}

// together plants the rows of one package that can be planted together, and builds its tests. One row is enough: the
// same binary runs without it. It answers nil when there is none, or when they do not build together.
func together(t *testing.T, root, dir string, rows []Bug) *binary {
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
		edits := map[span]string{} // what replaces a piece of the text
		twins := ""
		for _, i := range all {
			b := rows[i]
			change, to := b.change(text)
			at := slices.IndexFunc(fs, func(f function) bool { return f.body.from < change.from && change.to <= f.body.to })
			if at < 0 {
				continue
			}
			f := fs[at]
			number := i + 1
			twin := fmt.Sprintf("%s__%d", text[f.name.from:f.name.to], number)
			call := fmt.Sprintf(f.call, twin)
			begin := span{f.body.from + 1, f.body.from + 1}
			if f.void {
				edits[begin] += fmt.Sprintf(" if %s == %d { %s; return };", chosenName, number, call)
			} else {
				edits[begin] += fmt.Sprintf(" if %s == %d { return %s };", chosenName, number, call)
			}
			maps.Copy(edits, f.naming)
			twins += "\n" + text[f.whole.from:f.name.from] + twin + text[f.name.to:change.from] + to + text[change.to:f.whole.to] + "\n"
			out.numbers[i] = number
		}
		if twins == "" {
			continue
		}
		planted := text
		for _, at := range slices.Backward(slices.SortedFunc(maps.Keys(edits), func(a, b span) int { return a.from - b.from })) {
			planted = planted[:at.from] + edits[at] + planted[at.to:]
		}
		write(file, planted+twins)
		of, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		packages[filepath.Dir(file)] = of.Name.Name
	}
	if len(out.numbers) == 0 {
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
