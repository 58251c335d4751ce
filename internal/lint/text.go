package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// minDocLines is how many lines a package comment needs to say what the package owns, promises, and may
	// lose.
	minDocLines = 3
	// maxLines is where a file stops being one thing.
	maxLines = 800
)

// checkComments is the law "comments": every package has a package comment of at least minDocLines lines of
// prose in one of its files. A generated package has it in a doc.go next to the generated files: the
// generator sets a comment of the .proto file apart from the package clause.
func checkComments(t *tree) []finding {
	longest := make(map[string]int)
	for _, f := range t.goFiles() {
		dir := f.dir()
		longest[dir] = max(longest[dir], proseLines(f.ast.Doc))
	}
	var out []finding
	for _, dir := range slices.Sorted(maps.Keys(longest)) {
		if n := longest[dir]; n < minDocLines {
			out = append(out, finding{dir, 0, "comments", fmt.Sprintf(
				"the package comment has %d lines of prose, at least %d say what the package owns, promises and may lose", n, minDocLines)})
		}
	}
	return out
}

// proseLines counts the lines of a comment that are sentences: not headings, not code, not directives.
func proseLines(doc *ast.CommentGroup) int {
	n := 0
	for line := range strings.Lines(doc.Text()) {
		words := len(strings.Fields(line))
		if words > 1 && line[0] != '#' && line[0] != '\t' {
			n++
		}
	}
	return n
}

// longFile is the comment that lifts the limit on the length of a file.
var longFile = regexp.MustCompile(`(?m)^// ?long file:[ \t]*\S`)

// checkLength is the law "length".
func checkLength(t *tree) []finding {
	var out []finding
	for _, f := range t.goFiles() {
		lines := bytes.Count(f.text, []byte("\n"))
		if lines <= maxLines || f.isTest() || f.generated() || longFile.Match(header(t, f)) {
			continue
		}
		out = append(out, finding{f.path, 0, "length", fmt.Sprintf(
			"%d lines, at most %d; split it by what it does, or say why above its first declaration: // long file: <reason>", lines, maxLines)})
	}
	return out
}

// header is the text of a file before its first declaration.
func header(t *tree, f *sourceFile) []byte {
	if len(f.ast.Decls) == 0 {
		return f.text
	}
	first := f.ast.Decls[0]
	pos := first.Pos()
	if d, ok := first.(*ast.GenDecl); ok && d.Doc != nil {
		pos = d.Doc.Pos()
	}
	if d, ok := first.(*ast.FuncDecl); ok && d.Doc != nil {
		pos = d.Doc.Pos()
	}
	return f.text[:t.fset.Position(pos).Offset]
}

// mark is a note that something is still to be done.
var mark = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

// checkMarks is the law "marks". Of a Go file it reads the comments, of any other text all of it.
func checkMarks(t *tree) []finding {
	var out []finding
	add := func(f *sourceFile, line int, text string) {
		if m := mark.FindString(text); m != "" {
			out = append(out, finding{f.path, line, "marks", fmt.Sprintf("%s: do it, or leave it out and say so", m)})
		}
	}
	for _, f := range t.files {
		if f.ast == nil {
			n := 0
			for line := range strings.Lines(string(f.text)) {
				n++
				add(f, n, line)
			}
			continue
		}
		if f.generated() {
			continue // its comments are those of the .proto file
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				n := t.line(c.Pos())
				for line := range strings.Lines(c.Text) {
					add(f, n, line)
					n++
				}
			}
		}
	}
	return out
}

// checkSleep is the law "sleep": no test file names time.Sleep, under whatever name it imports time.
func checkSleep(t *tree) []finding {
	var out []finding
	for _, f := range t.goFiles() {
		if !f.isTest() {
			continue
		}
		name, imported := importName(f.ast, "time")
		if !imported {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == name && n.Sel.Name == "Sleep" {
					out = append(out, finding{f.path, t.line(n.Pos()), "sleep", "wait for a state with a deadline, not for time to pass"})
				}
			case *ast.Ident:
				if name == "." && n.Name == "Sleep" {
					out = append(out, finding{f.path, t.line(n.Pos()), "sleep", "wait for a state with a deadline, not for time to pass"})
				}
			}
			return true
		})
	}
	return out
}

// checkGoroutines is the law "goroutines": a package whose code has a go statement, and that has tests, calls
// testkit.Main or testkit.Exit in them.
func checkGoroutines(t *tree) []finding {
	first := make(map[string]finding) // by folder, the first go statement
	tested, checked := make(map[string]bool), make(map[string]bool)
	for _, f := range t.goFiles() {
		dir := f.dir()
		tested[dir] = tested[dir] || f.isTest()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if _, known := first[dir]; !known && !f.isTest() {
					first[dir] = finding{f.path, t.line(n.Pos()), "goroutines", "no TestMain of this package calls testkit.Main or testkit.Exit"}
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "testkit" && (n.Sel.Name == "Main" || n.Sel.Name == "Exit") {
					checked[dir] = true
				}
			}
			return true
		})
	}
	var out []finding
	for _, dir := range slices.Sorted(maps.Keys(first)) {
		if tested[dir] && !checked[dir] {
			out = append(out, first[dir])
		}
	}
	return out
}

// importName is the name by which a file knows an imported package.
func importName(f *ast.File, pkg string) (name string, imported bool) {
	for _, spec := range f.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name, true
		}
		return path.Base(pkg), true
	}
	return "", false
}
