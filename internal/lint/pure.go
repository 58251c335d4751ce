package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// impureImports are the packages, each with all below it, that a deterministic floor must not import.
var impureImports = []struct{ path, why string }{
	{"time", "time arrives inside the command, as an integer"},
	{"google.golang.org/protobuf/types/known/timestamppb", "time arrives inside the command, as an integer"},
	{"math/rand", "replicas must not differ by chance"},
	{"crypto/rand", "replicas must not differ by chance"},
	{"hash/maphash", "its seed differs in every process"},
	{"os", "higher floors decide where bytes are stored"},
	{"syscall", "the rules do not know the machine they run on"},
	{"runtime", "the rules do not know the machine they run on"},
	{"net", "the rules do not know the network"},
	{"context", "an apply is never cancelled half-way"},
	{"log", "the rules return values, the floors above log them"},
	{"github.com/hashicorp/go-hclog", "the rules return values, the floors above log them"},
	{"github.com/prometheus", "what is measured happens above the rules"},
	{"sync", "one apply runs at a time"},
	{"golang.org/x/sync", "one apply runs at a time"},
	{"google.golang.org/protobuf/encoding/protojson", "its output differs between builds on purpose"},
	{"google.golang.org/protobuf/encoding/prototext", "its output differs between builds on purpose"},
}

const protoPkg = "google.golang.org/protobuf/proto"

// impureFuncs are functions, by their full name, that let the order of a map out.
var impureFuncs = map[string]string{
	"maps.All":    "yields a map in no order",
	"maps.Keys":   "yields a map in no order: use slices.Sorted(maps.Keys(m))",
	"maps.Values": "yields a map in no order: use slices.Sorted over it, or over the keys",

	"(reflect.Value).MapRange": "yields a map in no order",
	"(reflect.Value).MapKeys":  "yields a map in no order",

	protoPkg + ".Marshal": "does not sort maps: use MarshalOptions{Deterministic: true}",
	"(google.golang.org/protobuf/reflect/protoreflect.Message).Range": "yields fields in no order",
	"(google.golang.org/protobuf/reflect/protoreflect.Map).Range":     "yields a map in no order",
}

// pureExceptions lists, by folder and then by import path, the exceptional imports of a pure package, each
// with the reason. An unused entry is a breach.
var pureExceptions = map[string]map[string]string{
	"fsm": {
		"sync":        "reads run concurrently with the machine's goroutine, and the database they read may be replaced or closed",
		"sync/atomic": "reads compare the version of the state before and after",
	},

	"internal/pebbleopen": {"sync": "Pebble asks for compactions on goroutines of its own"},
}

// A unit is one package as the law "pure" sees it.
type unit struct {
	dir  string
	fset *token.FileSet
	// files are those of the default build, with the types of what they say.
	files []*ast.File
	info  *types.Info
	// extra are the files that build constraints exclude. They are checked by their syntax alone.
	extra []*ast.File
	// name turns a position's file name into a path relative to the root.
	name func(string) string
}

// waiver is the comment that permits a range over a map: its order reaches neither state nor output.
const waiver = "//lint:sorted"

// checkPure is the law "pure" for one package. Generated files are exempt.
func checkPure(u unit, exceptions map[string]string) []finding {
	var out []finding
	needed := make(map[string]bool)
	for i, f := range append(u.files[:len(u.files):len(u.files)], u.extra...) {
		if ast.IsGenerated(f) {
			continue
		}
		j := &purist{unit: u, exceptions: exceptions, needed: needed, waivers: waivers(u.fset, f)}
		if i < len(u.files) {
			j.info = u.info
		}
		j.file(f)
		out = append(out, j.out...)
	}
	for path := range exceptions { //lint:sorted the findings are sorted at the end
		if !needed[path] {
			out = append(out, finding{"internal/lint/pure.go", 0, "pure", fmt.Sprintf("%s no longer imports %s: remove the exception", u.dir, path)})
		}
	}
	return out
}

// A purist checks one file.
type purist struct {
	unit
	info       *types.Info // nil: check by syntax
	exceptions map[string]string
	needed     map[string]bool
	waivers    map[int]*waived
	sorted     map[*ast.Ident]bool // iterators whose result slices.Sorted puts in order
	out        []finding
}

type waived struct {
	reason string
	used   bool
}

// waivers finds the waiver comments of a file by line.
func waivers(fset *token.FileSet, f *ast.File) map[int]*waived {
	out := make(map[int]*waived)
	for _, group := range f.Comments {
		for _, c := range group.List {
			if reason, ok := strings.CutPrefix(c.Text, waiver); ok {
				out[fset.Position(c.Pos()).Line] = &waived{reason: strings.TrimSpace(reason)}
			}
		}
	}
	return out
}

func (j *purist) report(pos token.Pos, format string, args ...any) {
	p := j.fset.Position(pos)
	j.out = append(j.out, finding{j.name(p.Filename), p.Line, "pure", fmt.Sprintf(format, args...)})
}

func (j *purist) file(f *ast.File) {
	j.imports(f)
	j.sorted = make(map[*ast.Ident]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.GoStmt:
			j.report(n.Pos(), "starts a goroutine")
		case *ast.SelectStmt:
			j.report(n.Pos(), "selects among channels")
		case *ast.ChanType:
			j.report(n.Pos(), "has a channel type")
		case *ast.SendStmt:
			j.report(n.Pos(), "sends on a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				j.report(n.Pos(), "receives from a channel")
			}
		case *ast.RangeStmt:
			if j.info != nil && isMap(j.info.TypeOf(n.X)) {
				j.unlessWaived(n.Pos(), "ranges over a map: sort its keys, or say on this line why no order gets out: "+waiver+" <reason>")
			}
		case *ast.CallExpr:
			j.call(n)
		case *ast.CompositeLit:
			j.composite(n)
		}
		if e, ok := n.(ast.Expr); ok {
			j.float(e)
		}
		if id, ok := n.(*ast.Ident); ok {
			j.function(id)
		}
		return true
	})
	if j.info == nil {
		return
	}
	for line, w := range j.waivers { //lint:sorted the findings are sorted at the end
		pos := f.FileStart
		if tf := j.fset.File(pos); tf != nil && line <= tf.LineCount() {
			pos = tf.LineStart(line)
		}
		switch {
		case !w.used:
			j.report(pos, "%s waives nothing here: it belongs on the line of a range over a map", waiver)
		case w.reason == "":
			j.report(pos, "%s without a reason", waiver)
		}
	}
}

func (j *purist) imports(f *ast.File) {
	for _, imp := range (&sourceFile{ast: f}).imports(j.fset) {
		for _, ban := range impureImports {
			if !under(imp.path, ban.path) {
				continue
			}
			if _, ok := j.exceptions[imp.path]; ok {
				j.needed[imp.path] = true
				continue
			}
			name := j.fset.Position(f.Package).Filename
			j.out = append(j.out, finding{j.name(name), imp.line, "pure", fmt.Sprintf("imports %s: %s", imp.path, ban.why)})
		}
	}
}

func (j *purist) unlessWaived(pos token.Pos, text string) {
	if w := j.waivers[j.fset.Position(pos).Line]; w != nil {
		w.used = true
		return
	}
	j.report(pos, "%s", text)
}

// call notes the iterators that slices.Sorted puts in order. A call is visited before its argument.
func (j *purist) call(c *ast.CallExpr) {
	if len(c.Args) != 1 || j.fullName(denotes(c.Fun)) != "slices.Sorted" {
		return
	}
	if inner, ok := ast.Unparen(c.Args[0]).(*ast.CallExpr); ok {
		j.sorted[denotes(inner.Fun)] = true
	}
}

// function reports the use of a function that is impure in itself.
func (j *purist) function(id *ast.Ident) {
	if name := j.fullName(id); impureFuncs[name] != "" && !j.sorted[id] {
		j.unlessWaived(id.Pos(), name+" "+impureFuncs[name])
	}
}

// fullName is the full name of the function that an identifier denotes, or "".
func (j *purist) fullName(id *ast.Ident) string {
	if j.info == nil || id == nil {
		return ""
	}
	fn, ok := j.info.Uses[id].(*types.Func)
	if !ok {
		return ""
	}
	return fn.Origin().FullName()
}

// denotes is the identifier that an expression for a function ends in, or nil.
func denotes(e ast.Expr) *ast.Ident {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	case *ast.IndexExpr: // an instance of a generic function
		return denotes(e.X)
	case *ast.IndexListExpr:
		return denotes(e.X)
	}
	return nil
}

// composite reports options for encoding a message that leave its maps unsorted.
func (j *purist) composite(lit *ast.CompositeLit) {
	if j.info == nil {
		return
	}
	named, ok := types.Unalias(j.info.TypeOf(lit)).(*types.Named)
	if !ok || named.Obj().Name() != "MarshalOptions" || named.Obj().Pkg() == nil || named.Obj().Pkg().Path() != protoPkg {
		return
	}
	for _, elt := range lit.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, isName := kv.Key.(*ast.Ident)
		value, isConst := kv.Value.(*ast.Ident)
		if isName && key.Name == "Deterministic" && isConst && value.Name == "true" {
			return
		}
	}
	j.report(lit.Pos(), "MarshalOptions without Deterministic: true does not sort maps")
}

// float reports an expression or a name of a floating-point or complex type.
func (j *purist) float(e ast.Expr) {
	if j.info == nil {
		switch e := e.(type) {
		case *ast.BasicLit:
			if e.Kind == token.FLOAT || e.Kind == token.IMAG {
				j.report(e.Pos(), "uses floating point")
			}
		case *ast.Ident:
			switch e.Name {
			case "float32", "float64", "complex64", "complex128":
				j.report(e.Pos(), "uses floating point")
			}
		}
		return
	}
	t := j.info.TypeOf(e)
	if t == nil {
		return
	}
	if b, ok := t.Underlying().(*types.Basic); ok && b.Info()&(types.IsFloat|types.IsComplex) != 0 {
		j.report(e.Pos(), "uses floating point")
	}
}

// isMap reports whether ranging over a value of type t ranges over a map; for a type parameter, whether it
// may.
func isMap(t types.Type) bool {
	if t == nil {
		return false
	}
	if tp, ok := types.Unalias(t).(*types.TypeParam); ok {
		iface, ok := tp.Constraint().Underlying().(*types.Interface)
		if !ok {
			return false
		}
		for e := range iface.EmbeddedTypes() {
			switch e := types.Unalias(e).(type) {
			case *types.Union:
				for term := range e.Terms() {
					if isMap(term.Type()) {
						return true
					}
				}
			default:
				if isMap(e) {
					return true
				}
			}
		}
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}
