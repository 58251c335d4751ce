package graph_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

// outputs is a lookup of what nodes have answered.
func outputs(m map[string]string) func(string) ([]byte, bool) {
	return func(id string) ([]byte, bool) {
		s, ok := m[id]
		return []byte(s), ok
	}
}

func TestInputs(t *testing.T) {
	got := outputs(map[string]string{
		"a":      ` {"rows": [ {"n": 1.10}, 12345678901234567890 ], "a<b": "x", "twice": 1, "twice": 2, "": 0} `,
		"empty":  "",
		"binary": "\x00\xff",
		"text":   "hello",
		"bad8":   "\"\xff\"",
		"list":   "[10,[20,21],null]",
	})
	for name, c := range map[string]struct {
		inputs []*perdurev1.NodeInput
		want   string
	}{
		"none":         {nil, `null`},
		"sorted":       {[]*perdurev1.NodeInput{fromValue("b", "1"), fromValue("a", "2"), fromValue("B", " 3\n")}, `{"B":3,"a":2,"b":1}`},
		"whole":        {[]*perdurev1.NodeInput{fromNode("x", "list")}, `{"x":[10,[20,21],null]}`},
		"number":       {[]*perdurev1.NodeInput{typed(fromNode("x", "a"), "rows.0.n", 0), typed(fromNode("y", "a"), "rows.1", 0)}, `{"x":1.10,"y":12345678901234567890}`},
		"raw":          {[]*perdurev1.NodeInput{typed(fromNode("x", "a"), "rows", 0)}, `{"x":[ {"n": 1.10}, 12345678901234567890 ]}`},
		"escapes":      {[]*perdurev1.NodeInput{typed(fromNode("<&\"", "a"), "a<b", 0)}, `{"<&\"":"x"}`},
		"last counts":  {[]*perdurev1.NodeInput{typed(fromNode("x", "a"), "twice", 0)}, `{"x":2}`},
		"item":         {[]*perdurev1.NodeInput{typed(fromNode("x", "list"), "1.0", 0), typed(fromNode("y", "list"), "2", 0)}, `{"x":20,"y":null}`},
		"nowhere":      {[]*perdurev1.NodeInput{typed(fromNode("a", "list"), "3", 0), typed(fromNode("b", "list"), "x", 0), typed(fromNode("c", "a"), "rows.0.n.x", 0), typed(fromNode("d", "list"), "-1", 0)}, `{"a":null,"b":null,"c":null,"d":null}`},
		"skipped":      {[]*perdurev1.NodeInput{fromNode("x", "gone"), typed(fromNode("y", "gone"), "a.b", 0), fromNode("z", "empty")}, `{"x":null,"y":null,"z":null}`},
		"not JSON":     {[]*perdurev1.NodeInput{fromNode("x", "binary"), fromNode("y", "text"), fromNode("z", "bad8")}, `{"x":"AP8=","y":"aGVsbG8=","z":"Iv8i"}`},
		"run":          {[]*perdurev1.NodeInput{fromRun("x", ""), fromRun("y", "file")}, `{"x":{"file":"f.csv"},"y":"f.csv"}`},
		"literal path": {[]*perdurev1.NodeInput{typed(fromValue("x", `{"a":[1]}`), "a.0", 0)}, `{"x":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := graph.Inputs(takes(node("n"), c.inputs...), []byte(`{"file":"f.csv"}`), got)
			if err != nil || string(in) != c.want {
				t.Errorf("got %s, %v; want %s", in, err, c.want)
			}
		})
	}
	for name, bad := range map[string][]*perdurev1.NodeInput{
		"twice":   {fromValue("x", "1"), fromValue("x", "2")},
		"literal": {fromValue("x", "{")},
		"nowhere": {{Name: "x"}},
		"path":    {fromRun("x", "a..b")},
	} {
		if in, err := graph.Inputs(takes(node("n"), bad...), nil, got); err == nil {
			t.Errorf("%s: got %s", name, in)
		}
	}
}

func TestInputsAreBoundedAndAskedOnce(t *testing.T) {
	asked := 0
	big := []byte(`"` + strings.Repeat("x", graph.MaxInputBytes/3) + `"`)
	output := func(string) ([]byte, bool) { asked++; return big, true }
	if _, err := graph.Inputs(takes(node("n"), fromNode("a", "x"), fromNode("b", "x")), nil, output); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	if _, err := graph.Inputs(takes(node("n"), fromNode("a", "x"), fromNode("b", "x"), fromNode("c", "x")), nil, output); !errors.Is(err, graph.ErrTooLarge) {
		t.Error(err)
	}
}

// TestPathsAgainstTheTwin follows random paths through random values, here as Go decodes them. A value that
// ends a path is put at the end of half of them, so that enough of them lead somewhere.
func TestPathsAgainstTheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(t, 3)
		path := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "0", "1"}), 1, 4).Draw(t, "path")
		there := rapid.Bool().Draw(t, "there")
		if there {
			value = "the end"
			for _, member := range slices.Backward(path) {
				i, err := strconv.Atoi(member)
				if err == nil && rapid.Bool().Draw(t, "list") {
					list := make([]any, i+1)
					list[i] = value
					value = list
				} else {
					value = map[string]any{member: value, "z": anyJSON(t, 1)}
				}
			}
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		want := value
		for _, member := range path {
			switch v := want.(type) {
			case map[string]any:
				want = v[member]
			case []any:
				want = nil
				if i, err := strconv.Atoi(member); err == nil && i < len(v) {
					want = v[i]
				}
			default:
				want = nil
			}
		}
		in, err := graph.Inputs(takes(node("n"), typed(fromNode("x", "a"), strings.Join(path, "."), 0)), nil, outputs(map[string]string{"a": string(text)}))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ X any }
		if err := json.Unmarshal(in, &got); err != nil || !reflect.DeepEqual(got.X, want) {
			t.Fatalf("%s at %v: got %s (%v), want %v", text, path, in, err, want)
		}
		if there && got.X != "the end" {
			t.Fatalf("%s at %v: got %s, the path leads to its end", text, path, in)
		}
	})
}

func anyJSON(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if depth == 0 {
		kind %= 3
	}
	switch kind {
	case 0:
		return rapid.Bool().Draw(t, "bool")
	case 1:
		return float64(rapid.Int32().Draw(t, "number"))
	case 2:
		return rapid.String().Draw(t, "text")
	case 3:
		out := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range out {
			out[i] = anyJSON(t, depth-1)
		}
		return out
	default:
		out := make(map[string]any)
		for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "0", "z"}), 0, 4).Draw(t, "members") {
			out[name] = anyJSON(t, depth-1)
		}
		return out
	}
}

// FuzzInputs: whatever a node has answered, the next one gets JSON.
func FuzzInputs(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`), "a.1.b", "x")
	f.Add([]byte("\xff"), "0", "\xff")
	f.Add([]byte(" "), "", "")
	f.Fuzz(func(t *testing.T, value []byte, path, name string) {
		in, err := graph.Inputs(takes(node("n"), typed(fromNode(name, "a"), path, 0), fromRun(name+"r", path)), value,
			func(string) ([]byte, bool) { return value, true })
		if err == nil && !json.Valid(in) {
			t.Fatalf("%q is not JSON", in)
		}
		plain := graph.AsJSON(value)
		if !json.Valid(plain) {
			t.Fatalf("%q is not JSON", plain)
		}
		if len(value) > 0 && !json.Valid(value) && string(plain) != `"`+base64.StdEncoding.EncodeToString(value)+`"` {
			t.Fatalf("%q", plain)
		}
	})
}

func TestSinks(t *testing.T) {
	g := graphOf(node("z", "a"), node("a"), node("b", "a"), node("c"))
	if got := graph.Sinks(g); !reflect.DeepEqual(got, []string{"b", "c", "z"}) {
		t.Error(got)
	}
	got := graph.SinkOutputs(g, outputs(map[string]string{"a": "1", "z": `{"x": 1e2}`, "b": "\x01"}))
	if string(got) != `{"b":"AQ==","c":null,"z":{"x": 1e2}}` {
		t.Errorf("%s", got)
	}
	if got := graph.SinkOutputs(nil, outputs(nil)); string(got) != "{}" {
		t.Errorf("%s", got)
	}
}

// A result has the maximal size, or one byte more: then the object in its place says so, and a node that
// takes it as an input gets an error instead of nothing.
func TestSinkOutputsTooLarge(t *testing.T) {
	g := graphOf(node("a"), node("b"))
	const around = len(`{"a":"","b":""}`)
	for extra := range 2 {
		b := graph.MaxResultBytes - around - 7 + extra
		got := graph.SinkOutputs(g, outputs(map[string]string{"a": `"1234567"`, "b": `"` + strings.Repeat("x", b) + `"`}))
		too, is := graph.ParseTooLarge(got)
		if extra == 0 {
			if is || len(got) != graph.MaxResultBytes || !json.Valid(got) {
				t.Errorf("%d bytes, %.80s", len(got), got)
			}
			continue
		}
		const want = `{"$too_large":{"rule":"result_limit","bytes":1048577,"limit":1048576,"message":"graph: result_limit: ` +
			`the result has 1048577 bytes, at most 1048576 are answered: read the output of each node by itself"}}`
		if !is || too.Bytes != graph.MaxResultBytes+1 || string(got) != want {
			t.Errorf("%+v, %.300s", too, got)
		}
		for _, path := range []string{"", "b"} {
			in, err := graph.Inputs(takes(node("n"), typed(fromNode("x", "sub"), path, 0)), nil, outputs(map[string]string{"sub": string(got)}))
			if !errors.As(err, &too) {
				t.Errorf("path %q: %s, %v", path, in, err)
			}
		}
	}
	// The first of many may break the bound: what follows still counts.
	got := graph.SinkOutputs(graphOf(node("a"), node("b"), node("c")), outputs(map[string]string{
		"a": `"` + strings.Repeat("x", graph.MaxResultBytes) + `"`, "b": "1", "c": "2"}))
	if too, is := graph.ParseTooLarge(got); !is || too.Bytes != int64(graph.MaxResultBytes+len(`{"a":"","b":1,"c":2}`)) {
		t.Errorf("%+v, %.300s", too, got)
	}
	for _, other := range []string{"", "null", "{}", `{"a":1}`, `{"$too_large":{}}`, `{"$too_large":{"rule":"result_limit","bytes":1,"limit":1}}`,
		`{"$too_large":1}`, `{"$too_large":{"rule":"result_limit","bytes":2,"limit":1},"a":1}`, `{"$too_large":`} {
		if _, is := graph.ParseTooLarge([]byte(other)); is {
			t.Errorf("%s passes for a result that is too large", other)
		}
	}
}

func TestKinds(t *testing.T) {
	for want, n := range map[string]*perdurev1.GraphNode{
		"function f": node("a"),
		"http":       call("http://a", nil),
		"signal s":   {Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "s"}}},
		"sleep":      {Kind: &perdurev1.GraphNode_Sleep{}},
		"subgraph":   {Kind: &perdurev1.GraphNode_Subgraph{}},
		"":           nil,
	} {
		if got := graph.Kind(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Quote writes what the encoder of JSON writes without escapes for HTML, for any text.
func TestQuoteAgainstTheEncoder(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, s string) {
		var want strings.Builder
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(s); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if got := string(graph.Quote(s)); got != strings.TrimSuffix(want.String(), "\n") {
			t.Fatalf("%q is quoted as %s, not %s", s, got, want.String())
		}
	}
	for c := range 1 << 16 {
		check(t, "a"+string(rune(c))+"b")
	}
	for c := range 256 {
		check(t, string([]byte{'a', byte(c), 'b'}))
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.String().Draw(t, "text")) })
}
