package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// pureHelpers are internal packages that are pure although only packages above those floors import them.
var pureHelpers = []string{"internal/credit"}

// pureDirs lists the folders that the law "pure" covers: those of the floors below partition/ that hold code
// written by hand, and the internal helpers that they import, since a helper's actions are its caller's. The
// helpers in pureHelpers are pure for every importer.
func pureDirs(t *tree, rows []place) []string {
	dirs := make(map[string]bool)
	for _, f := range t.goFiles() {
		p, known := placeOf(rows, f.dir())
		low := known && p.floor < partitionFloor || slices.Contains(pureHelpers, f.dir())
		if !low || f.isTest() || f.generated() {
			continue
		}
		dirs[f.dir()] = true
		for _, imp := range f.imports(t.fset) {
			if target, ours := strings.CutPrefix(imp.path, module+"/"); ours && top(target) == "internal" {
				dirs[target] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// loadUnits type-checks the packages in dirs, relative to root. The types of what they import come from
// the build cache, so this costs little once the project has been built.
func loadUnits(root string, dirs []string) ([]unit, []finding, error) {
	if len(dirs) == 0 {
		return nil, nil, nil
	}
	patterns := make([]string, len(dirs))
	for i, dir := range dirs {
		patterns[i] = module + "/" + dir
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
		Dir: root,
	}, patterns...)
	if err != nil {
		return nil, nil, fmt.Errorf("load the pure packages: %w", err)
	}
	name := func(file string) string {
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return file
		}
		return filepath.ToSlash(rel)
	}
	var (
		units    []unit
		problems []finding
	)
	for _, p := range pkgs {
		dir := strings.TrimPrefix(p.PkgPath, module+"/")
		if n := len(p.Errors); n > 0 {
			problems = append(problems, finding{dir, 0, "pure", fmt.Sprintf(
				"cannot be checked, it does not compile (%d errors): %v", n, p.Errors[n-1])})
			continue
		}
		u := unit{dir: dir, fset: p.Fset, files: p.Syntax, info: p.TypesInfo, name: name}
		if top(dir) != "internal" { // a helper answers for its default build only
			extra, err := leftOut(p)
			if err != nil {
				return nil, nil, err
			}
			u.extra = extra
		}
		units = append(units, u)
	}
	return units, problems, nil
}

// leftOut parses the files that build constraints leave out of a package.
func leftOut(p *packages.Package) ([]*ast.File, error) {
	var out []*ast.File
	for _, file := range p.IgnoredFiles {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(p.Fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}
