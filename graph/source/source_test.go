package source_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
	"perdure/graph/source"
)

var update = flag.Bool("update", false, "write the golden files")

// corpus calls each with every file of a folder that is not golden.
func corpus(t testing.TB, folder string, each func(name string, content []byte)) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, ".golden") {
			continue
		}
		content, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		each(filepath.Base(f), content)
	}
}

// golden compares with a file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func TestGoodFiles(t *testing.T) {
	corpus(t, "good", func(name string, content []byte) {
		g, err := source.Parse(name, content)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		golden(t, filepath.Join("testdata", "good", name+".golden"), source.Format(g))
	})
}

func TestBadFilesAreRefusedWithTheirLines(t *testing.T) {
	atLine := regexp.MustCompile(`^[^:]+:[1-9][0-9]*: .`)
	corpus(t, "bad", func(name string, content []byte) {
		_, err := source.Parse(name, content)
		var e *source.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: accepted", name)
			return
		}
		for _, p := range e.Problems {
			if !atLine.MatchString(p.String()) || p.Rule == "" {
				t.Errorf("%s: %s (%s)", name, p, p.Rule)
			}
		}
		golden(t, filepath.Join("testdata", "bad", name+".golden"), []byte(e.Error()+"\n"))
	})
}

// TestTheDocumentedExample keeps the package comment true.
func TestTheDocumentedExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(doc)) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			example.WriteString(text)
		} else if strings.HasPrefix(line, "// # Rules") {
			break
		}
	}
	g, err := source.Parse("doc.go", []byte(example.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Nodes) != 6 || g.Nodes[1].GetRetry().GetFactorPercent() != 200 || g.Nodes[3].GetTimeoutMs() != 48*3600*1000 {
		t.Errorf("%v", g)
	}
	if in := g.Nodes[1].Inputs[1]; string(in.GetValue()) != `{"node":1}` || in.Path != "node" {
		t.Errorf("%v", in)
	}
}

func TestProblemsOfAFileAreBounded(t *testing.T) {
	var file strings.Builder
	file.WriteString("nodes:\n")
	for i := range 30 {
		fmt.Fprintf(&file, "  n%d: {function: %d}\n  m%d: {function: f, after: [nobody]}\n", i, i, i)
	}
	_, err := source.Parse("f", []byte(file.String()))
	var e *source.Error
	if !errors.As(err, &e) || len(e.Problems) != 20 || e.More != 40 {
		t.Fatal(err)
	}
}

func TestAliasesCannotExplode(t *testing.T) {
	var file strings.Builder
	file.WriteString("nodes:\n  a:\n    function: f\n    inputs:\n      x0: &x0 [1, 2]\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&file, "      x%d: &x%d [*x%d, *x%d]\n", i, i, i-1, i-1)
	}
	_, err := source.Parse("f", []byte(file.String()))
	var e *source.Error
	if !errors.As(err, &e) || e.Problems[0].Rule != source.RuleSize {
		t.Fatal(err)
	}
}

// TestFormatIsReadBack is the law of the canonical form, and of every duration and factor there is.
func TestFormatIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t, 2)
		if err := graph.Validate(g); err != nil {
			t.Fatalf("the generator is wrong: %v", err)
		}
		text := source.Format(g)
		back, err := source.Parse("f", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !proto.Equal(g, back) {
			t.Fatalf("%s\ngot  %v\nwant %v", text, back, g)
		}
		if again := source.Format(back); !bytes.Equal(again, text) {
			t.Fatalf("%s\nthen\n%s", text, again)
		}
		checkSchema(t, text)
	})
}

var (
	anyName   = rapid.StringOfN(rapid.RuneFrom([]rune("aZ09 _-.:{}[]#&*!|>'\"%@`,?~=<$/\\äß\u0085\u00a0\u2028\ufeff\uffff😀")), 1, 20, 200)
	anyWord   = rapid.OneOf(rapid.SampledFrom([]string{"true", "null", "~", "yes", "1", "1e3", "0x1", "2001-12-14", "<<", "=", "- a", ".inf"}), anyName)
	anyID     = rapid.OneOf(rapid.SampledFrom([]string{"true", "1", "-", ".", "1.5", "null", "-1", "0x1", "_"}), rapid.StringMatching(`[A-Za-z0-9_.-]{1,12}`))
	durations = rapid.OneOf(rapid.Int64Range(1, 5000), rapid.Int64Range(1, graph.MaxDurationMs))
)

// anyGraph draws a graph that Validate accepts.
func anyGraph(t *rapid.T, depth int) *perdurev1.Graph {
	g := &perdurev1.Graph{MaxParallel: rapid.SampledFrom([]uint32{0, 1, 1 << 31}).Draw(t, "parallel"), Wave: rapid.Bool().Draw(t, "wave")}
	if rapid.Bool().Draw(t, "named") {
		g.Name = anyWord.Draw(t, "name")
	}
	var ids []string
	for i, id := range rapid.SliceOfNDistinct(anyID, 1, 6, rapid.ID[string]).Draw(t, "ids") {
		n := &perdurev1.GraphNode{Id: id, OnFailure: perdurev1.OnFailure(rapid.IntRange(0, 1).Draw(t, "failure"))}
		for _, p := range ids {
			if rapid.Bool().Draw(t, "edge") {
				n.After = append(n.After, p)
			}
		}
		if rapid.Bool().Draw(t, "timed") {
			n.TimeoutMs = durations.Draw(t, "timeout")
		}
		if rapid.Bool().Draw(t, "retried") {
			n.Retry = &perdurev1.NodeRetry{Attempts: rapid.Uint32Range(0, 1000).Draw(t, "attempts"), FactorPercent: rapid.Uint32Range(100, 1000).Draw(t, "factor")}
			if rapid.Bool().Draw(t, "paused") {
				n.Retry.InitialMs, n.Retry.MaxMs = durations.Draw(t, "initial"), durations.Draw(t, "max")
			}
		}
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		if depth == 0 {
			kind %= 4
		}
		switch kind {
		case 0:
			name := anyWord.Filter(func(s string) bool { return s[0] != '$' }).Draw(t, "function")
			n.Kind = &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: name}}
		case 1:
			h := &perdurev1.HttpNode{Url: "http://a/" + rapid.StringMatching(`[a-z:{},#?&*'"-]*`).Draw(t, "url"), SendInputs: rapid.Bool().Draw(t, "send")}
			h.Method = rapid.SampledFrom([]string{"", "GET", "null"}).Draw(t, "method")
			for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching("[A-Z!#$%&'*+.^_`|~-]{1,9}"), 0, 3, rapid.ID[string]).Draw(t, "headers") {
				if h.Headers == nil {
					h.Headers = make(map[string]string)
				}
				h.Headers[name] = anyWord.Draw(t, "header")
			}
			n.Kind = &perdurev1.GraphNode_Http{Http: h}
		case 2:
			n.Kind = &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: anyWord.Draw(t, "signal")}}
		case 3:
			n.Kind = &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: durations.Draw(t, "sleep")}}
		case 4:
			n.Kind = &perdurev1.GraphNode_Subgraph{Subgraph: anyGraph(t, depth-1)}
		}
		if kind != 4 {
			n.Output = perdurev1.ValueType(rapid.IntRange(0, 5).Draw(t, "output"))
		}
		if kind != 2 && kind != 3 {
			for _, name := range rapid.SliceOfNDistinct(anyWord, 0, 4, rapid.ID[string]).Draw(t, "inputs") {
				n.Inputs = append(n.Inputs, anyInput(t, name, g.Nodes, n.After))
			}
		}
		ids = append(ids, id)
		g.Nodes = append(g.Nodes, n)
		_ = i
	}
	return g
}

func anyInput(t *rapid.T, name string, nodes []*perdurev1.GraphNode, after []string) *perdurev1.NodeInput {
	in := &perdurev1.NodeInput{Name: name}
	if rapid.Bool().Draw(t, "descend") {
		in.Path = strings.Trim(strings.ReplaceAll(anyWord.Draw(t, "path"), "..", "x"), ".")
	}
	switch rapid.IntRange(0, 2).Draw(t, "source") {
	case 0:
		if len(after) == 0 {
			in.Source = &perdurev1.NodeInput_Run{Run: true}
			break
		}
		id := rapid.SampledFrom(after).Draw(t, "from")
		in.Source = &perdurev1.NodeInput_Node{Node: id}
		for _, n := range nodes {
			if n.Id == id && n.Output > perdurev1.ValueType_VALUE_TYPE_ARRAY {
				in.Path, in.Type = "", n.Output
			}
		}
	case 1:
		in.Source = &perdurev1.NodeInput_Run{Run: true}
		in.Type = perdurev1.ValueType(rapid.IntRange(0, 5).Draw(t, "type"))
	default:
		value := anyLiteral(t, 3)
		if value[0] != '{' && value[0] != '[' && value[0] != 'n' {
			in.Path = ""
		}
		in.Source = &perdurev1.NodeInput_Value{Value: []byte(value)}
	}
	return in
}

// anyLiteral draws JSON without white space.
func anyLiteral(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 4).Draw(t, "literal")
	if depth == 0 {
		kind %= 3
	}
	text := func() string {
		return string(graph.Quote(rapid.OneOf(anyWord, rapid.String(), rapid.SampledFrom([]string{"node", "run", "value", "path", "type", "", strings.Repeat("x", 2000)})).Draw(t, "text")))
	}
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"true", "false", "null", "0", "-0", "1.10", "1e400", "-1E-5", "123456789012345678901234567890"}).Draw(t, "word")
	case 1, 2:
		return text()
	case 3:
		var items []string
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			items = append(items, anyLiteral(t, depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var members []string
	seen := make(map[string]bool)
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		name := text()
		if !seen[name] {
			members = append(members, name+":"+anyLiteral(t, depth-1))
		}
		seen[name] = true
	}
	return "{" + strings.Join(members, ",") + "}"
}

// FuzzParse: no file is too strange; what is accepted is valid, has one canonical form, and fits the schema.
func FuzzParse(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		corpus(f, folder, func(_ string, content []byte) { f.Add(content) })
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		g, err := source.Parse("f", content)
		if err != nil {
			var e *source.Error
			if !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("%#v", err)
			}
			return
		}
		if err := graph.Validate(g); err != nil {
			t.Fatal(err)
		}
		text := source.Format(g)
		back, err := source.Parse("f", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !proto.Equal(g, back) {
			t.Fatalf("%s\ngot  %v\nwant %v", text, back, g)
		}
		checkSchema(t, text)
	})
}

func BenchmarkParse(b *testing.B) {
	g := &perdurev1.Graph{}
	for i := range 10_000 {
		n := &perdurev1.GraphNode{Id: fmt.Sprint("n", i), Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "f"}}}
		for j := max(0, i-10); j < i; j++ {
			n.After = append(n.After, fmt.Sprint("n", j))
		}
		g.Nodes = append(g.Nodes, n)
	}
	content := source.Format(g)
	for b.Loop() {
		if _, err := source.Parse("f", content); err != nil {
			b.Fatal(err)
		}
	}
}
