package lint

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// plant makes a tree of texts given as path, text, path, text, …
func plant(t *testing.T, pathsAndTexts ...string) *tree {
	t.Helper()
	texts := make(map[string][]byte)
	for pair := range slices.Chunk(pathsAndTexts, 2) {
		texts[pair[0]] = []byte(pair[1])
	}
	planted := newTree(texts)
	if len(planted.problems) > 0 {
		t.Fatal(planted.problems)
	}
	return planted
}

// expect compares findings with lines of the form "path:line: law: part of the text".
func expect(t *testing.T, got []finding, want ...string) {
	t.Helper()
	got = ordered(got)
	if len(got) != len(want) {
		t.Errorf("%d findings, want %d:\n%s", len(got), len(want), list(got))
		return
	}
	for i, g := range got {
		law := strings.Index(want[i], ": ")
		if !strings.HasPrefix(g.String(), want[i][:law]+": ") || !strings.Contains(g.String(), want[i][law+2:]) {
			t.Errorf("finding %d:\n got %s\nwant %s", i, g, want[i])
		}
	}
}

func list(fs []finding) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// floorsCase is a Go file at path that imports target.
func floorsCase(t *testing.T, path, target string) *tree {
	return plant(t, path, fmt.Sprintf("package p\n\nimport _ %q\n", target))
}

func TestFloorsCatch(t *testing.T) {
	for _, c := range []struct{ path, target, breach string }{
		{"journal/a.go", "perdure/fsm", "journal (floor 1) imports fsm (floor 2)"},
		{"id/a.go", "perdure/partition/router", "id (floor 0) imports partition/router (floor 3)"},
		{"journal/a.go", "perdure/recovery", "neighbours do not know each other"},
		{"journal/a_test.go", "perdure/recovery", "neighbours do not know each other"},
		{"partition/a.go", "perdure/membership", "neighbours do not know each other"},
		{"client/a.go", "perdure/durable", "neighbours do not know each other"},
		{"client/a.go", "perdure/journal", "may know only api, id"},
		{"durable/deep/a.go", "perdure/fsm", "may know only api, id, journal"},
		{"durable/a.go", "perdure/embed", "durable (floor 4) imports embed (floor 5)"},
		{"jepsen/a.go", "perdure/fsm", "may know only"},
		{"jepsen/a_test.go", "perdure/embed", "neighbours do not know each other"},
		{"bench/a.go", "perdure/jepsen", "neighbours do not know each other"},
		{"internal/x/a.go", "perdure/id", "import nothing of the project"},
		{"strange/a.go", "fmt", `folder "strange" is on no floor`},
		{"journal/a.go", "perdure/strange", "is on no floor"},
		{"a.go", "fmt", `folder "." is on no floor`},
		{"journal/a.go", "github.com/cockroachdb/pebble/v2", "must not know"},
		{"fsm/machine/a.go", "github.com/hashicorp/raft", "must not know"},
		{"fsm/codec/a.go", "google.golang.org/grpc/codes", "must not know"},
		{"rpc/console/a.go", "go.etcd.io/bbolt", "must not know"},
		{"client/a.go", "github.com/hashicorp/raft", "must not know"},
		{"partition/peers/a.go", "perdure/partition", "of partition it may know only partition/transport"},
		{"fsm/query/a.go", "perdure/fsm/machine", "of fsm it may know only fsm/state, fsm/wire"},
		{"fsm/audit/a.go", "perdure/fsm/machine", "of fsm it may know only fsm/state, fsm/wire"},
		{"fsm/audit/a.go", "perdure/fsm", "of fsm it may know only"},
		{"fsm/machine/a.go", "perdure/fsm/query", "of fsm it may know only"},
		{"fsm/state/keys/a.go", "perdure/fsm/machine", "of fsm it may know only"},

		{"fsm/a.go", "perdure/journal", ""},
		{"fsm/a.go", "perdure/fsm/machine", ""},
		{"fsm/machine/a.go", "perdure/recovery", ""},
		{"partition/peers/a.go", "perdure/partition/transport", ""},
		{"fsm/machine/a.go", "perdure/fsm/audit", ""},
		{"fsm/machine/a_test.go", "perdure/fsm/query", ""},
		{"fsm/audit/a.go", "perdure/fsm/state/keys", ""},
		{"partition/identity/a_test.go", "perdure/partition/transport", ""},
		{"fsm/a.go", "github.com/cockroachdb/pebble/v2", ""},
		{"fsm/a.go", "github.com/hashicorp/raft", ""},
		{"journal/a.go", "perdure/internal/invariants", ""},
		{"journal/a_test.go", "github.com/cockroachdb/pebble/v2/vfs", ""},
		{"durable/a.go", "perdure/client", ""},
		{"durable/a.go", "perdure/journal", ""},
		{"client/a_test.go", "perdure/embed", ""},
		{"client/a.go", "google.golang.org/grpc", ""},
		{"rpc/a.go", "perdure/partition", ""},
		{"embed/a.go", "perdure/rpc", ""},
		{"cmd/node/a.go", "perdure/embed", ""},
		{"examples/hello/a.go", "perdure/durable", ""},
		{"api/a.go", "google.golang.org/grpc/status", ""},
	} {
		got := checkFloors(floorsCase(t, c.path, c.target), table)
		switch {
		case c.breach == "" && len(got) > 0:
			t.Errorf("%s may import %s, but: %v", c.path, c.target, got)
		case c.breach != "" && (len(got) != 1 || !strings.Contains(got[0].text, c.breach)):
			t.Errorf("%s imports %s: got %v, want one finding with %q", c.path, c.target, got, c.breach)
		}
	}
	expect(t, checkFloors(floorsCase(t, "journal/a.go", "perdure/fsm"), table), "journal/a.go:3: floors")
}

func TestFloorsCatchAnIdleException(t *testing.T) {
	rows := []place{
		{dir: "low", floor: 0},
		{dir: "one", floor: 1, peers: map[string]string{"two": "a reason"}},
		{dir: "two", floor: 1},
	}
	code := "\nfunc f() {}\n"
	expect(t, checkFloors(plant(t, "one/a.go", "package one"+code, "two/a.go", "package two"+code), rows),
		"internal/lint/floors.go: one no longer imports two")
	expect(t, checkFloors(plant(t, "one/a.go", "package one\nimport _ \"perdure/two\""+code, "two/a.go", "package two"+code), rows))
	expect(t, checkFloors(plant(t, "one/a.go", "package one"+code, "two/doc.go", "package two\n"), rows))
}

// TestTableIsSound keeps the table itself honest: an exception has a reason and is one.
func TestTableIsSound(t *testing.T) {
	floorOf := make(map[string]int)
	for _, p := range table {
		if _, twice := floorOf[p.dir]; twice {
			t.Errorf("%s has two rows", p.dir)
		}
		floorOf[p.dir] = p.floor
	}
	for _, p := range table {
		if f, ok := floorOf[top(p.dir)]; !ok || f != p.floor {
			t.Errorf("%s is not on the floor of %s", p.dir, top(p.dir))
		}
		for peer, reason := range p.peers {
			if f, ok := floorOf[peer]; !ok || f != p.floor || reason == "" {
				t.Errorf("%s: %s is no neighbour with a reason", p.dir, peer)
			}
		}
		for dir, reason := range p.tests {
			if f, ok := floorOf[dir]; !ok || f <= p.floor || reason == "" {
				t.Errorf("%s: its tests need no exception for %s, or it has no reason", p.dir, dir)
			}
		}
		for _, dir := range p.siblings {
			if top(dir) != top(p.dir) || under(dir, p.dir) {
				t.Errorf("%s: %s is no sibling", p.dir, dir)
			}
		}
		for _, dir := range p.only {
			if f, ok := floorOf[dir]; !ok || f > p.floor {
				t.Errorf("%s: it can never import %s", p.dir, dir)
			}
		}
	}
	for dir, exceptions := range pureExceptions {
		for path, reason := range exceptions {
			p, ok := placeOf(table, dir)
			pure := ok && p.floor < partitionFloor || top(dir) == "internal" // as a helper of the low floors
			if !pure || reason == "" {
				t.Errorf("%s: the exception for %s is not needed or has no reason", dir, path)
			}
		}
	}
}

// foreign are substitutes for the imports of the planted packages from outside the standard library.
var foreign = map[string]string{
	protoPkg: `package proto
type Message any
type MarshalOptions struct{ Deterministic, AllowPartial bool }
func (MarshalOptions) Marshal(Message) ([]byte, error) { return nil, nil }
func Marshal(Message) ([]byte, error) { return nil, nil }`,
	"google.golang.org/protobuf/reflect/protoreflect": `package protoreflect
type Map interface{ Range(func() bool) }`,
}

// A plantedImporter knows those, and the packages whose types the planted code uses. The rest does not
// resolve, which no law minds: an import is checked by its path.
type plantedImporter struct {
	t    *testing.T
	fset *token.FileSet
}

var std = importer.Default()

func (im plantedImporter) Import(path string) (*types.Package, error) {
	switch path {
	case "cmp", "crypto/rand", "maps", "math", "math/rand/v2", "reflect", "slices", "time":
		return std.Import(path)
	}
	text, ok := foreign[path]
	if !ok {
		return nil, fmt.Errorf("%s is not planted", path)
	}
	f, err := parser.ParseFile(im.fset, path+".go", text, 0)
	if err != nil {
		im.t.Fatal(err)
	}
	return new(types.Config).Check(path, im.fset, []*ast.File{f}, nil)
}

// plantUnit type-checks one file as the package in dir; extra, if any, is left out by a build constraint.
func plantUnit(t *testing.T, text string, extra ...string) unit {
	t.Helper()
	fset := token.NewFileSet()
	parse := func(name, text string) *ast.File {
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	u := unit{
		dir: "fsm", fset: fset, files: []*ast.File{parse("fsm/a.go", text)},
		info: &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)},
		name: func(file string) string { return file },
	}
	for _, text := range extra {
		u.extra = append(u.extra, parse("fsm/extra.go", text))
	}
	conf := types.Config{
		Importer: plantedImporter{t, fset},
		Error:    func(error) {}, // what is declared and not used does not matter here
	}
	_, _ = conf.Check("perdure/fsm", fset, u.files, u.info)
	return u
}

// wanted reads the expectations out of a planted text: a line that ends in `// want: TEXT` must have a
// finding with TEXT, a line without it none.
func wanted(file, text string) []string {
	var out []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		if _, want, ok := strings.Cut(line, "// want: "); ok {
			out = append(out, fmt.Sprintf("%s:%d: %s", file, n, strings.TrimSpace(want)))
		}
	}
	return out
}

const planted = `package fsm

import (
	"cmp"
	"maps"
	"slices"
	"math"
	"reflect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type table map[string]int

func ranges(m map[string]int, t table, s []int) (n int) {
	for range s {
	}
	for k := range m { // want: ranges over a map
		n += len(k)
	}
	for range t { // want: ranges over a map
	}
	for range m { //lint:sorted only counted
		n++
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n += m[k]
	}
	for k := range maps.Keys(m) { // want: maps.Keys yields a map in no order
		_ = k
	}
	_ = slices.Collect(maps.Values(m)) // want: maps.Values yields a map in no order
	_ = slices.SortedFunc(maps.Keys(m), cmp.Compare[string]) // want: maps.Keys yields
	each := maps.All[map[string]int] // want: maps.All yields a map in no order
	_ = each
	return n
}

func generic[M ~map[K]V | table2[K, V], K cmp.Ordered, V any](m M) {
	for range m { // want: ranges over a map
	}
}

type table2[K cmp.Ordered, V any] map[K]V

func reflected(v reflect.Value, pm protoreflect.Map) {
	_ = v.MapKeys() // want: (reflect.Value).MapKeys yields
	pm.Range(nil) // want: (google.golang.org/protobuf/reflect/protoreflect.Map).Range yields
}

func encode(m proto.Message) {
	_, _ = proto.Marshal(m) // want: proto.Marshal does not sort maps
	_, _ = proto.MarshalOptions{Deterministic: true}.Marshal(m)
	_, _ = proto.MarshalOptions{AllowPartial: true}.Marshal(m) // want: MarshalOptions without Deterministic
	_, _ = proto.MarshalOptions{Deterministic: false}.Marshal(m) // want: MarshalOptions without Deterministic
}

type sample struct {
	rate float64 // want: uses floating point
	n int
}

func floats(s sample) int {
	const third = 1 / 3.0 // want: uses floating point
	x := math.Sqrt(2) // want: uses floating point
	_ = x // want: uses floating point
	return s.n / 3
}

func concurrent(
	c chan int, // want: has a channel type
	) {
	go floats(sample{}) // want: starts a goroutine
	c <- 1 // want: sends on a channel
	<-c // want: receives from a channel
	select {} // want: selects among channels
}
`

func TestPureCatchesWhatTypesShow(t *testing.T) {
	expect(t, checkPure(plantUnit(t, planted), nil), wanted("fsm/a.go", planted)...)
}

func TestPureCatchesWaiversThatAreNone(t *testing.T) {
	expect(t, checkPure(plantUnit(t, `package fsm
func f(m map[string]int) {
	for range m { //lint:sorted
	}
	for range 3 { //lint:sorted not a map
	}
}
`), nil), "fsm/a.go:3: without a reason", "fsm/a.go:5: waives nothing here")
}

func TestPureCatchesImports(t *testing.T) {
	for _, path := range []string{
		"time", "math/rand", "math/rand/v2", "crypto/rand", "os", "os/exec", "context", "log", "log/slog",
		"net", "net/http", "sync", "sync/atomic", "runtime", "runtime/debug", "hash/maphash", "syscall",
		"github.com/hashicorp/go-hclog", "github.com/prometheus/client_golang/prometheus",
		"google.golang.org/protobuf/encoding/protojson", "google.golang.org/protobuf/types/known/timestamppb",
	} {
		text := fmt.Sprintf("package fsm\nimport _ %q\n", path)
		expect(t, checkPure(plantUnit(t, text), nil), "fsm/a.go:2: imports "+path+": ")
		expect(t, checkPure(plantUnit(t, text), map[string]string{path: "a reason"}))
	}
	for _, path := range []string{"errors", "math", "math/bits", "sort", "google.golang.org/protobuf/encoding/protowire"} {
		expect(t, checkPure(plantUnit(t, fmt.Sprintf("package fsm\nimport _ %q\n", path)), nil))
	}
	expect(t, checkPure(plantUnit(t, "package fsm\n"), map[string]string{"time": "a reason"}),
		"internal/lint/pure.go: fsm no longer imports time")
}

const plantedClock = `package fsm

import (
	crypt "crypto/rand"
	"math/rand/v2"
	"time"
)

type clock interface{ Now() time.Time }

func times(c clock) time.Duration {
	began := c.Now()
	<-time.After(time.Second) // want: uses time.After
	now := time.Now // want: uses time.Now
	t := time.NewTimer(time.Second) // want: uses time.NewTimer
	t.Reset(time.Second)
	return now().Sub(began)
}

func chance(r *rand.Rand) int {
	_, _ = crypt.Read(nil) // want: uses crypto/rand.Read
	_ = crypt.Reader // want: uses crypto/rand.Reader
	_ = rand.New(rand.NewPCG(1, 2))
	return r.IntN(3) + rand.IntN(3) // want: uses math/rand/v2.IntN
}
`

func TestClockCatches(t *testing.T) {
	extra := `//go:build other

package fsm

import "time"

var at = time.Now() // want: uses time.Now
`
	expect(t, checkClock(plantUnit(t, plantedClock, extra)), append(wanted("fsm/a.go", plantedClock), wanted("fsm/extra.go", extra)...)...)
}

func TestClockCoversFloorThree(t *testing.T) {
	got := clockDirs(plant(t, "partition/a.go", "package partition\n", "partition/x/a.go", "package x\n", "membership/a.go", "package membership\n",
		"membership/y/a_test.go", "package y\n", "rpc/a.go", "package rpc\n", "fsm/a.go", "package fsm\n"), table)
	if want := []string{"membership", "partition", "partition/x"}; !slices.Equal(got, want) {
		t.Errorf("covers %v, want %v", got, want)
	}
}

// TestPureCatchesLeftOutFiles: a file that only another build contains is checked by its syntax.
func TestPureCatchesLeftOutFiles(t *testing.T) {
	extra := `//go:build other

package fsm

import "time" // want: imports time

var rate float64 // want: uses floating point

const third = 0.3 // want: uses floating point

func f() {
	go f() // want: starts a goroutine
}
`
	expect(t, checkPure(plantUnit(t, "package fsm\n", extra), nil), wanted("fsm/extra.go", extra)...)
}

func TestPureSparesGeneratedFiles(t *testing.T) {
	text := "// Code generated by a tool. DO NOT EDIT.\npackage fsm\n\nimport _ \"time\"\n"
	expect(t, checkPure(plantUnit(t, text), nil))
}

func TestPureCoversTheLowFloorsAndTheirHelpers(t *testing.T) {
	generated := "// Code generated by a tool. DO NOT EDIT.\npackage v1\n"
	got := pureDirs(plant(t,
		"id/a.go", "package id\n",
		"api/v1/a.pb.go", generated,
		"fsm/machine/a.go", "package machine\nimport _ \"perdure/internal/invariants\"\n",
		"fsm/machine/a_test.go", "package machine\nimport _ \"perdure/internal/golden\"\n",
		"entity/a_test.go", "package entity\n",
		"internal/invariants/a.go", "package invariants\n",
		"internal/golden/a.go", "package golden\n",
		"partition/a.go", "package partition\nimport _ \"perdure/internal/dial\"\n",
		"internal/dial/a.go", "package dial\n",
		"internal/credit/a.go", "package credit\n",
	), table)
	if want := []string{"fsm/machine", "id", "internal/credit", "internal/invariants"}; !slices.Equal(got, want) {
		t.Errorf("covers %v, want %v", got, want)
	}
}

func TestCommentsCatch(t *testing.T) {
	long := "// Package a owns one thing.\n// It promises another.\n// A crash loses nothing.\npackage a\n"
	expect(t, checkComments(plant(t,
		"good/doc.go", long, "good/more.go", "package a\n",
		"tests/a_test.go", long,
		"none/a.go", "package b\n",
		"short/a.go", "// Package c owns one thing.\n// And that is all.\npackage c\n",
		"hollow/a.go", "// Package d owns it.\n//\n// # Heading words\n//\n//\tcode is not prose\n//\n//go:directive of nothing\npackage d\n",
		"loose/a.go", strings.Replace(long, "package", "\npackage", 1),
	)),
		"hollow: 1 lines of prose", "loose: 0 lines of prose", "none: 0 lines of prose", "short: 2 lines of prose")
}

func TestLengthCatches(t *testing.T) {
	body := strings.Repeat("var _ = 0\n", maxLines)
	expect(t, checkLength(plant(t,
		"a/edge.go", "package a\n"+body[:len(body)-len("var _ = 0\n")],
		"a/over.go", "package a\n"+body,
		"a/why.go", "package a\n\n// long file: one table that is read from top to bottom\n\n"+body,
		"a/empty.go", "// long file:\npackage a\n"+body,
		"a/late.go", "package a\n"+body+"// long file: too late to be read\n",
		"a/over_test.go", "package a\n"+body,
		"a/gen.go", "// Code generated by a tool. DO NOT EDIT.\npackage a\n"+body,
	)), "a/empty.go: 802 lines, at most 800", "a/late.go: 802 lines, at most 800", "a/over.go: 801 lines, at most 800")
}

func TestMarksCatch(t *testing.T) {
	note := "TO" + "DO"
	expect(t, checkMarks(plant(t,
		"a/a.go", "package a\n\n// "+note+": later\nvar a = \""+note+"\" // fine in a string\n\n/* one\n FIX"+"ME two */\n",
		"a/a_test.go", "package a\n\nvar b = 1 // XX"+"X\n",
		"a/word.go", "package a\n\n// "+note+"S and HACK"+"ER are words of their own.\n",
		"a/gen.go", "// Code generated by a tool. DO NOT EDIT.\npackage a\n\n// "+note+"\n",
		"api/a.proto", "// HA"+"CK\n",
		".ci/run", "# mktemp /tmp/XXXXXX\n# "+note+"\n",
	)), ".ci/run:2: "+note, "a/a.go:3: "+note, "a/a.go:7: FIX"+"ME", "a/a_test.go:3: XX"+"X", "api/a.proto:1: HA"+"CK")
}

func TestSleepCatches(t *testing.T) {
	expect(t, checkSleep(plant(t,
		"a/a_test.go", "package a\n\nimport \"time\"\n\nfunc f() {\n\ttime.Sleep(1)\n}\n",
		"a/named_test.go", "package a\n\nimport clock \"time\"\n\nvar pause = clock.Sleep\n",
		"a/dot_test.go", "package a\n\nimport . \"time\"\n\nfunc g() { Sleep(1) }\n",
		"a/other_test.go", "package a\n\nimport \"time\"\n\nvar _ = time.Now\n\nvar _ = fake.Sleep\n",
		"a/code.go", "package a\n\nimport \"time\"\n\nfunc h() { time.Sleep(1) }\n",
	)), "a/a_test.go:6: wait for a state", "a/dot_test.go:5: wait for a state", "a/named_test.go:5: wait for a state")
}

func TestGoroutinesCatch(t *testing.T) {
	expect(t, checkGoroutines(plant(t,
		"a/a.go", "package a\n\nfunc f() {\n\tgo f()\n\tgo f()\n}\n",
		"a/a_test.go", "package a\n",
		"b/b.go", "package b\n\nfunc f() { go f() }\n",
		"b/b_test.go", "package b\n\nfunc TestMain(m *testing.M) { testkit.Main(m) }\n",
		"c/c.go", "package c\n\nfunc f() { go f() }\n",
		"d/d_test.go", "package d\n\nfunc f() { go f() }\n",
	)), "a/a.go:4: no TestMain of this package")
}

func TestDependenciesCatch(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", `module perdure

go 1.26.0

require (
	github.com/hashicorp/raft v1.7.3
	github.com/hashicorp/raft-boltdb/v2 v2.3.1
	google.golang.org/grpc v1.85.0
	go.etcd.io/bbolt v1.5.0 // indirect
	example.com/tools/gen v1.0.0 // indirect
)

tool example.com/tools/gen/cmd/gen
`)
	mod, err := readGoMod(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"example.com/tools/gen", "github.com/hashicorp/raft", "github.com/hashicorp/raft-boltdb/v2", "google.golang.org/grpc"}
	if got := mod.direct(); !slices.Equal(got, want) {
		t.Errorf("direct dependencies %v, want %v", got, want)
	}
	expect(t, checkDependencies(mod, nil), "ARCHITECTURE.md: does not exist")
	expect(t, checkDependencies(mod, []byte("`hashicorp/raft-boltdb/v2` keeps it; see google.golang.org/grpc/status, example.com/tools/gen.\n")),
		"ARCHITECTURE.md: does not mention github.com/hashicorp/raft,", "ARCHITECTURE.md: does not mention google.golang.org/grpc,")
	expect(t, checkDependencies(mod, []byte("| github.com/hashicorp/raft | [hashicorp/raft-boltdb/v2] | google.golang.org/grpc. | (example.com/tools/gen)")))
}

func TestExamplesCatch(t *testing.T) {
	files := fstest.MapFS{
		"a/a_test.go": {Data: []byte("package a\n\nfunc TestHere(t *testing.T) {}\n\n// func TestGone(t\n")},
		examplesPage: {Data: []byte("| x | [TestHere](../a/a_test.go), [ExampleThere](../b/b_test.go) |\n\n[TestGone](../a/a_test.go)\n" +
			"[TestHer](../a/a_test.go) [the guide](../durable/GUIDE.md)\n")},
	}
	expect(t, checkExamples(files.ReadFile), "examples/README.md:1: ExampleThere is not in b/b_test.go",
		"examples/README.md:3: TestGone is not in a/a_test.go", "examples/README.md:4: TestHer is not in a/a_test.go")
	expect(t, checkExamples(fstest.MapFS{}.ReadFile), "examples/README.md: does not exist")
}

// TestReadTree: what is not ours, or not source, is not read.
func TestReadTree(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{
		"a/a.go", "a/testdata/b.go", "a/_c/c.go", ".git/d.go", ".ci/run", "nested/go.mod", "nested/e.go",
		"perdure-data/f.go", "api/g.proto", "README.md", "h.bin",
	} {
		write(t, dir, path, "package p\n")
	}
	got, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range got.files {
		paths = append(paths, f.path)
	}
	if want := []string{".ci/run", "README.md", "a/a.go", "api/g.proto"}; !slices.Equal(paths, want) {
		t.Errorf("read %v, want %v", paths, want)
	}
}

func TestSyntaxErrorsAreReported(t *testing.T) {
	broken := newTree(map[string][]byte{"a/a.go": []byte("package a\nfunc {\n")})
	expect(t, broken.problems, "a/a.go: syntax: ")
}
