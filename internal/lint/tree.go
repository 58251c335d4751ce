package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// module is the module path of this repository, as go.mod has it.
const module = "perdure"

// A finding is one breach of one law.
type finding struct {
	file string // relative to the root, with slashes
	line int    // 0 if the breach is not at a line
	law  string
	text string
}

// String is the finding as an editor can jump to it.
func (f finding) String() string {
	if f.line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.file, f.law, f.text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.law, f.text)
}

// ordered sorts findings by place and drops repetitions: an expression and its parts often break one
// law at one line.
func ordered(fs []finding) []finding {
	slices.SortFunc(fs, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line),
			strings.Compare(a.law, b.law), strings.Compare(a.text, b.text))
	})
	return slices.Compact(fs)
}

// A sourceFile is one text file of the repository.
type sourceFile struct {
	path string // relative to the root, with slashes
	text []byte
	ast  *ast.File // nil unless it is Go
}

func (f *sourceFile) dir() string     { return path.Dir(f.path) }
func (f *sourceFile) isTest() bool    { return strings.HasSuffix(f.path, "_test.go") }
func (f *sourceFile) generated() bool { return f.ast != nil && ast.IsGenerated(f.ast) }

// imports are the import paths of a Go file with their lines, in the order of the file.
func (f *sourceFile) imports(fset *token.FileSet) []importLine {
	var out []importLine
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused it already
		}
		out = append(out, importLine{p, fset.Position(spec.Pos()).Line})
	}
	return out
}

type importLine struct {
	path string
	line int
}

// A tree is the repository as the laws that need no types see it: every Go file whatever its build
// constraints, and the other texts that people write.
type tree struct {
	fset     *token.FileSet
	files    []*sourceFile // sorted by path
	problems []finding     // files that do not parse
}

// textSuffixes are the other files that carry prose or comments of ours.
var textSuffixes = []string{
	".proto", ".md", ".yml", ".yaml", ".sh", ".toml", ".html", ".css", ".js", ".ts", ".py", "Dockerfile",
}

// skipDirs hold what is not ours or not source.
var skipDirs = map[string]bool{"testdata": true, "vendor": true, "node_modules": true, "perdure-data": true}

// readTree reads the repository at root. Nested modules, hidden folders (but for .ci) and test data are
// not part of it.
func readTree(root string) (*tree, error) {
	texts := make(map[string][]byte)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == "." {
				return nil
			}
			name := d.Name()
			if skipDirs[name] || name[0] == '_' || (name[0] == '.' && name != ".ci" && name != ".github") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() && isOurs(rel) {
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			texts[rel] = text
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return newTree(texts), nil
}

func isOurs(rel string) bool {
	if strings.HasSuffix(rel, ".go") || strings.HasPrefix(rel, ".ci/") {
		return true
	}
	return slices.ContainsFunc(textSuffixes, func(s string) bool { return strings.HasSuffix(rel, s) })
}

// newTree parses texts, given by path.
func newTree(texts map[string][]byte) *tree {
	t := &tree{fset: token.NewFileSet()}
	for _, p := range slices.Sorted(maps.Keys(texts)) {
		f := &sourceFile{path: p, text: texts[p]}
		t.files = append(t.files, f)
		if !strings.HasSuffix(p, ".go") {
			continue
		}
		parsed, err := parser.ParseFile(t.fset, p, f.text, parser.ParseComments|parser.SkipObjectResolution)
		f.ast = parsed
		if err != nil {
			t.problems = append(t.problems, finding{p, 0, "syntax", err.Error()})
		}
	}
	return t
}

// goFiles are the Go files, sorted by path.
func (t *tree) goFiles() []*sourceFile {
	var out []*sourceFile
	for _, f := range t.files {
		if f.ast != nil {
			out = append(out, f)
		}
	}
	return out
}

// line is the line of a position.
func (t *tree) line(p token.Pos) int { return t.fset.Position(p).Line }
