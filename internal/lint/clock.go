package lint

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"slices"
)

// machineClock are the functions of package time that read the machine's clock or wait by it.
var machineClock = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true,
	"After": true, "AfterFunc": true, "Tick": true, "NewTimer": true, "NewTicker": true,
}

// seeded are the types of math/rand and its functions that use no chance of their own.
var seeded = map[string]bool{"Rand": true, "Source": true, "New": true, "NewSource": true, "NewZipf": true, "NewPCG": true, "NewChaCha8": true}

// clockDirs are the folders that the law "clock" covers: floor 3, where time and chance are passed on.
func clockDirs(t *tree, rows []place) []string {
	dirs := make(map[string]bool)
	for _, f := range t.goFiles() {
		if p, known := placeOf(rows, f.dir()); known && p.floor == partitionFloor && !f.isTest() {
			dirs[f.dir()] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// checkClock is the law "clock" for one package: it takes time and chance from internal/clock, so that a simulator can
// run it. Files that build constraints leave out are checked by their imports.
func checkClock(u unit) []finding {
	var out []finding
	report := func(n ast.Node, text string) {
		p := u.fset.Position(n.Pos())
		out = append(out, finding{u.name(p.Filename), p.Line, "clock", text})
	}
	use := func(n ast.Node, pkg, name string, other bool) {
		switch {
		case other:
		case pkg == "time" && machineClock[name]:
			report(n, fmt.Sprintf("uses time.%s: take the time from a clock.Clock", name))
		case (pkg == "math/rand" || pkg == "math/rand/v2") && !seeded[name], pkg == "crypto/rand":
			report(n, fmt.Sprintf("uses %s.%s: take randomness from the options, by default clock.Entropy", pkg, name))
		}
	}
	for _, f := range u.files {
		ast.Inspect(f, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			switch obj := u.info.Uses[id].(type) {
			case *types.Func:
				if obj.Pkg() != nil {
					use(id, obj.Pkg().Path(), obj.Name(), obj.Signature().Recv() != nil)
				}
			case *types.Var:
				if obj.Pkg() != nil && !obj.IsField() && obj.Parent() == obj.Pkg().Scope() {
					use(id, obj.Pkg().Path(), obj.Name(), false)
				}
			}
			return true
		})
	}
	for _, f := range u.extra {
		for _, pkg := range []string{"time", "math/rand", "math/rand/v2", "crypto/rand"} {
			local, imported := importName(f, pkg)
			if local == "v2" {
				local = "rand"
			}
			if !imported {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					x, ok := sel.X.(*ast.Ident)
					use(sel, pkg, sel.Sel.Name, !ok || x.Name != local)
				}
				return true
			})
		}
	}
	return out
}
