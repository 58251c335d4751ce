package graph_test

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

func nested(depth int) *perdurev1.Graph {
	g := graphOf(node("leaf"))
	for range depth {
		g = graphOf(&perdurev1.GraphNode{Id: "sub", Kind: &perdurev1.GraphNode_Subgraph{Subgraph: g}})
	}
	return g
}

func TestBadGraphsAreRefusedAtTheirPath(t *testing.T) {
	const (
		object, array = perdurev1.ValueType_VALUE_TYPE_OBJECT, perdurev1.ValueType_VALUE_TYPE_ARRAY
		str, number   = perdurev1.ValueType_VALUE_TYPE_STRING, perdurev1.ValueType_VALUE_TYPE_NUMBER
	)
	declared := func(id string, t perdurev1.ValueType) *perdurev1.GraphNode {
		return with(node(id), func(n *perdurev1.GraphNode) { n.Output = t })
	}
	wide := layered(2, 1001) // 1,002,001 edges
	for name, c := range map[string]struct {
		g    *perdurev1.Graph
		want []string // rule, path: message
	}{
		"nil":           {nil, []string{`graph_has_nodes nodes: a graph needs at least one node`}},
		"no node":       {&perdurev1.Graph{Name: "x"}, []string{`graph_has_nodes nodes: a graph needs at least one node`}},
		"graph's name":  {&perdurev1.Graph{Name: "a\x00", Nodes: graphOf(node("a")).Nodes}, []string{`name_form name: the name "a\x00" has a control character`}},
		"too many":      {layered(1, 10_001), []string{`node_limit nodes: 10001 nodes, at most 10000 are allowed`}},
		"too many edge": {wide, []string{`edge_limit nodes: 1002001 edges, at most 1000000 are allowed`}},
		"nil node":      {graphOf(nil), []string{`node_id_form nodes[0].id: the node has no id`, `node_has_kind nodes[0]: the node is neither a function, an HTTP call, a signal, a sleep nor a subgraph`}},
		"id signs":      {graphOf(node("a b")), []string{`node_id_form nodes[0] (id "a b").id: the id "a b" has ' '; letters, digits, '_', '-' and '.' are allowed`}},
		"id umlaut":     {graphOf(node("ä")), []string{`node_id_form nodes[0] (id "ä").id: the id "ä" has 'ä'; letters, digits, '_', '-' and '.' are allowed`}},
		"id length": {graphOf(node(strings.Repeat("x", 129))), []string{
			`node_id_form nodes[0] (id "` + strings.Repeat("x", 128) + `"…).id: the id has 129 bytes, at most 128 are allowed`}},
		"twice":          {graphOf(node("a"), node("b"), node("a")), []string{`node_id_unique nodes[2] (id "a").id: "a" is the id of nodes[0] already`}},
		"unknown":        {graphOf(node("parse"), node("b", "prase")), []string{`edge_known nodes[1] (id "b").after[0]: there is no node "prase"; did you mean "parse"?`}},
		"self":           {graphOf(node("a", "a")), []string{`edge_not_self nodes[0] (id "a").after[0]: a node cannot come after itself`}},
		"edge twice":     {graphOf(node("a"), node("b", "a", "a")), []string{`edge_once nodes[1] (id "b").after[1]: "a" is named twice`}},
		"cycle":          {graphOf(node("z"), node("a", "b", "z"), node("b", "c"), node("c", "a")), []string{`acyclic nodes[1] (id "a").after[0]: cycle: a → c → b → a`}},
		"cycle of two":   {graphOf(node("a", "b"), node("b", "a")), []string{`acyclic nodes[0] (id "a").after[0]: cycle: a → b → a`}},
		"no kind":        {graphOf(&perdurev1.GraphNode{Id: "a"}), []string{`node_has_kind nodes[0] (id "a"): the node is neither a function, an HTTP call, a signal, a sleep nor a subgraph`}},
		"function empty": {graphOf(with(node("a"), func(n *perdurev1.GraphNode) { n.GetFunction().Function = "" })), []string{`name_form nodes[0] (id "a").function.function: the function has no name`}},
		"function long": {graphOf(with(node("a"), func(n *perdurev1.GraphNode) { n.GetFunction().Function = strings.Repeat("x", 257) })), []string{
			`name_form nodes[0] (id "a").function.function: the name has 257 bytes, at most 256 are allowed`}},
		"function text":     {graphOf(with(node("a"), func(n *perdurev1.GraphNode) { n.GetFunction().Function = "\xff" })), []string{`name_form nodes[0] (id "a").function.function: the name is not valid UTF-8`}},
		"function reserved": {graphOf(with(node("a"), func(n *perdurev1.GraphNode) { n.GetFunction().Function = "$http" })), []string{`name_reserved nodes[0] (id "a").function.function: the name "$http" is reserved: it begins with '$'`}},
		"signal":            {graphOf(&perdurev1.GraphNode{Id: "a", Kind: &perdurev1.GraphNode_Signal{}}), []string{`name_form nodes[0] (id "a").signal.name: the signal has no name`}},
		"sleep 0":           {graphOf(&perdurev1.GraphNode{Id: "a", Kind: &perdurev1.GraphNode_Sleep{}}), []string{`duration_bounds nodes[0] (id "a").sleep.duration_ms: 0 ms, at least 1 is needed`}},
		"sleep long": {graphOf(&perdurev1.GraphNode{Id: "a", Kind: &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: graph.MaxDurationMs + 1}}}), []string{
			`duration_bounds nodes[0] (id "a").sleep.duration_ms: 315360000001 ms is more than ten years`}},
		"retry": {graphOf(with(node("a"), func(n *perdurev1.GraphNode) {
			n.TimeoutMs, n.OnFailure, n.Output = -1, 7, 9
			n.Retry = &perdurev1.NodeRetry{Attempts: 1001, InitialMs: -1, MaxMs: -5, FactorPercent: 99}
		})), []string{
			`duration_bounds nodes[0] (id "a").timeout_ms: -1 ms is negative`,
			`enum_known nodes[0] (id "a").on_failure: the value 7 is not known`,
			`enum_known nodes[0] (id "a").output: the value 9 is not known`,
			`retry_bounds nodes[0] (id "a").retry.attempts: 1001 attempts, at most 1000 are allowed`,
			`duration_bounds nodes[0] (id "a").retry.initial_ms: -1 ms is negative`,
			`duration_bounds nodes[0] (id "a").retry.max_ms: -5 ms is negative`,
			`retry_bounds nodes[0] (id "a").retry.factor_percent: a factor of 99 percent, 100 to 1000 are allowed`}},
		"call": {graphOf(with(call("ftp://x", map[string]string{"A b": "", "X": "1\r\n", "y": "1", "Y": "2"}), func(n *perdurev1.GraphNode) { n.GetHttp().Method = "GET IT" })), []string{
			`url_form nodes[0] (id "a").http.url: the address does not begin with http:// or https://`,
			`method_form nodes[0] (id "a").http.method: "GET IT" is not a method of HTTP`,
			`header_form nodes[0] (id "a").http.headers["A b"]: "A b" is not a name of a header field`,
			`header_form nodes[0] (id "a").http.headers["X"]: the value has a control character`,
			`header_form nodes[0] (id "a").http.headers["y"]: "y" is the same field as "Y"`}},
		"depth": {nested(9), []string{`nesting_limit ` + strings.TrimSuffix(strings.Repeat(`nodes[0] (id "sub").subgraph.`, 9), ".") + `: subgraphs nest at most 8 deep`}},
		"inside": {graphOf(&perdurev1.GraphNode{Id: "s", Kind: &perdurev1.GraphNode_Subgraph{Subgraph: graphOf(node("x", "s"))}}), []string{
			`edge_known nodes[0] (id "s").subgraph.nodes[0] (id "x").after[0]: there is no node "s"`}},
		"subgraph's type": {graphOf(&perdurev1.GraphNode{Id: "s", Output: str, Kind: &perdurev1.GraphNode_Subgraph{Subgraph: graphOf(node("x"))}},
			takes(node("b", "s"), typed(fromNode("i", "s"), "", array))), []string{
			`input_type nodes[0] (id "s").output: the output of a subgraph is an object, not string`,
			`input_type nodes[1] (id "b").inputs[0].type: the output of s is declared as object, not array`}},
		"inputs": {graphOf(node("a"), takes(node("b", "a"), fromNode("", "a"), fromNode("x", "a"), fromNode("x", "nope"), fromNode("self", "b"),
			typed(fromNode("p", "a"), "a..b", 11), &perdurev1.NodeInput{Name: "n"}, fromValue("v", "{"),
			&perdurev1.NodeInput{Name: "r", Source: &perdurev1.NodeInput_Run{}})), []string{
			`name_form nodes[1] (id "b").inputs[0].name: the input has no name`,
			`input_unique nodes[1] (id "b").inputs[2].name: "x" is the name of inputs[1] already`,
			`input_known nodes[1] (id "b").inputs[2].node: there is no node "nope"`,
			`input_from_ancestor nodes[1] (id "b").inputs[3].node: a node cannot take its own output`,
			`path_form nodes[1] (id "b").inputs[4].path: the path "a..b" has an empty member`,
			`enum_known nodes[1] (id "b").inputs[4].type: the value 11 is not known`,
			`input_has_source nodes[1] (id "b").inputs[5]: the input comes from nowhere; name a node, a value or the run`,
			`value_is_json nodes[1] (id "b").inputs[6].value: the value is not JSON`,
			`input_has_source nodes[1] (id "b").inputs[7].run: false is no source; name a node, a value or the run`}},
		"not an ancestor": {graphOf(node("a"), node("b"), takes(node("c", "b"), fromNode("x", "b"), fromNode("y", "a"))), []string{
			`input_from_ancestor nodes[2] (id "c").inputs[1].node: "a" does not come before this node; name it, or a node after it, in "after"`}},
		"from a successor": {graphOf(takes(node("a"), fromNode("x", "b")), node("b", "a")), []string{
			`input_from_ancestor nodes[0] (id "a").inputs[0].node: "b" does not come before this node; name it, or a node after it, in "after"`}},
		"into a signal": {graphOf(takes(&perdurev1.GraphNode{Id: "a", Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "s"}}}, fromRun("x", ""))), []string{
			`kind_takes_inputs nodes[0] (id "a").inputs: a signal takes no inputs`}},
		"into a sleep": {graphOf(takes(&perdurev1.GraphNode{Id: "a", Kind: &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: 1}}}, fromRun("x", ""))), []string{
			`kind_takes_inputs nodes[0] (id "a").inputs: a sleep takes no inputs`}},
		"types": {graphOf(declared("s", str), declared("o", object), takes(node("c", "s", "o"),
			typed(fromNode("ok", "s"), "", str), typed(fromNode("bad", "s"), "", number), typed(fromNode("member", "s"), "x", 0),
			typed(fromNode("ok2", "o"), "x", number), typed(fromValue("v", ` "x"`), "", number), typed(fromValue("null", "null"), "", number),
			typed(fromValue("w", "3"), "x", 0), typed(fromRun("r", ""), "", number))), []string{
			`input_type nodes[2] (id "c").inputs[1].type: the output of s is declared as string, not number`,
			`input_type nodes[2] (id "c").inputs[2].path: the output of s is declared as string, which has no members`,
			`input_type nodes[2] (id "c").inputs[4].type: the value is string, not number`,
			`input_type nodes[2] (id "c").inputs[6].path: the value is number, which has no members`}},
	} {
		t.Run(name, func(t *testing.T) {
			var got *graph.Error
			if !errors.As(graph.Validate(c.g), &got) {
				t.Fatal("accepted")
			}
			var lines []string
			for _, p := range got.Problems {
				lines = append(lines, p.Rule+" "+p.String())
			}
			if !slices.Equal(lines, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(lines, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestGoodGraphsPass(t *testing.T) {
	for name, g := range map[string]*perdurev1.Graph{
		"one":        graphOf(node("A-z_0.9")),
		"limit":      layered(100, 100),
		"deep":       nested(8),
		"same names": graphOf(node("a"), &perdurev1.GraphNode{Id: "s", Kind: &perdurev1.GraphNode_Subgraph{Subgraph: graphOf(node("a"))}}),
		"far away":   graphOf(takes(node("c", "b"), fromNode("x", "a")), node("b", "a"), node("a")),
		"call":       graphOf(call("HTTPS://example.org:8443/a%20b?q=1#f", map[string]string{"Accept": "text/plain"})),
	} {
		if err := graph.Validate(g); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProblemsAreBoundedAndCounted(t *testing.T) {
	g := &perdurev1.Graph{}
	for i := range 50 {
		g.Nodes = append(g.Nodes, node(fmt.Sprint("n", i), "nobody"))
	}
	var got *graph.Error
	if !errors.As(graph.Validate(g), &got) {
		t.Fatal("accepted")
	}
	if len(got.Problems) != graph.MaxProblems || got.More != 30 {
		t.Fatalf("%d problems and %d more, want 20 and 30", len(got.Problems), got.More)
	}
	text := got.Error()
	if !strings.HasPrefix(text, "graph: 50 problems:\n  nodes[0] (id \"n0\").after[0]: ") || !strings.HasSuffix(text, "\n  and 30 more") {
		t.Error(text)
	}
	if p := got.Problems[3].Path.Pointer(); p != "nodes[3].after[0]" {
		t.Error(p)
	}
}

// TestAncestorsAgainstTheTwin holds the bitsets against a walk from each node on its own.
func TestAncestorsAgainstTheTwin(t *testing.T) {
	refused, accepted := 0, 0
	check := func(t *rapid.T, mayBeWrong bool) {
		count := rapid.IntRange(2, 200).Draw(t, "nodes")
		names := rapid.Permutation(seq(count)).Draw(t, "names") // ids do not follow the topological order
		chance := rapid.IntRange(1, 40).Draw(t, "chance")
		g := &perdurev1.Graph{}
		before := make(map[string]map[string]bool) // all that come before
		for i := range count {
			var after []string
			all := make(map[string]bool)
			for j := range i {
				if rapid.IntRange(0, 99).Draw(t, "edge") < chance && len(after) < 4 {
					after = append(after, names[j])
					all[names[j]] = true
					maps.Copy(all, before[names[j]])
				}
			}
			before[names[i]] = all
			g.Nodes = append(g.Nodes, node(names[i], after...))
		}
		isBefore := func(a, b string) bool { return before[b][a] }
		n := g.Nodes[rapid.IntRange(0, count-1).Draw(t, "one")]
		bad := make(map[string]bool)
		for _, n := range []*perdurev1.GraphNode{n, g.Nodes[count-1]} {
			if n.Inputs != nil {
				continue
			}
			for _, other := range names {
				if other != n.Id && (isBefore(other, n.Id) || mayBeWrong && len(bad) < 5 && rapid.IntRange(0, 20).Draw(t, "wrong") == 0) {
					n.Inputs = append(n.Inputs, fromNode(other, other))
					if !isBefore(other, n.Id) {
						bad[n.Id+" "+other] = true
					}
				}
			}
		}
		slices.SortFunc(g.Nodes, func(a, b *perdurev1.GraphNode) int { return strings.Compare(a.Id, b.Id) })
		got := make(map[string]bool)
		var e *graph.Error
		if errors.As(graph.Validate(g), &e) {
			refused++
			for _, p := range e.Problems {
				if p.Rule != graph.RuleAncestor {
					t.Fatal(p)
				}
				n := g.Nodes[p.Path[0].Index]
				got[n.Id+" "+n.Inputs[p.Path[1].Index].GetNode()] = true
			}
		} else {
			accepted++
		}
		if fmt.Sprint(got) != fmt.Sprint(bad) {
			t.Fatalf("got %v, want %v", got, bad)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, false)
		check(t, true)
	})
	if refused == 0 || accepted == 0 {
		t.Fatalf("%d refused, %d accepted: one side was never tried", refused, accepted)
	}
}

// Inputs from more far nodes than a word has bits are checked like those from a few.
func TestAncestorsInBlocks(t *testing.T) {
	for _, count := range []int{63, 64, 65, 66, 130} {
		g := graphOf(node("alone"), node("n0"))
		for i := range count {
			g.Nodes = append(g.Nodes, node(fmt.Sprint("n", i+1), fmt.Sprint("n", i)))
		}
		last := g.Nodes[len(g.Nodes)-1]
		for i := range count - 1 { // the one before the last node's own is not far
			last.Inputs = append(last.Inputs, fromNode(fmt.Sprint("i", i), fmt.Sprint("n", i)))
		}
		if err := graph.Validate(g); err != nil {
			t.Errorf("%d far sources: %v", count-1, err)
		}
		last.Inputs = append(last.Inputs, fromNode("x", "alone"))
		var e *graph.Error
		if !errors.As(graph.Validate(g), &e) || len(e.Problems) != 1 || e.Problems[0].Rule != graph.RuleAncestor {
			t.Errorf("%d far sources, and one that does not come before: %v", count-1, e)
		}
	}
}

func seq(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("n%03d", i)
	}
	return out
}

// TestCyclesAreCycles follows the cycle that is named.
func TestCyclesAreCycles(t *testing.T) {
	cycles := 0
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(2, 10).Draw(t, "nodes")
		g := &perdurev1.Graph{}
		edge := make(map[string]bool)
		for i, id := range seq(count) {
			var after []string
			for j, p := range seq(count) {
				if i != j && rapid.IntRange(0, 9).Draw(t, "edge") < 2 {
					after = append(after, p)
					edge[p+" "+id] = true
				}
			}
			g.Nodes = append(g.Nodes, node(id, after...))
		}
		reach := func(a, b string) bool { return edge[a+" "+b] }
		closure := make(map[string]bool)
		ids := seq(count)
		for _, a := range ids {
			for _, b := range ids {
				closure[a+b] = reach(a, b)
			}
		}
		cyclic := false
		for _, k := range ids {
			for _, a := range ids {
				for _, b := range ids {
					closure[a+b] = closure[a+b] || closure[a+k] && closure[k+b]
				}
			}
		}
		for _, a := range ids {
			cyclic = cyclic || closure[a+a]
		}
		var e *graph.Error
		if !errors.As(graph.Validate(g), &e) {
			if cyclic {
				t.Fatal("a cycle was accepted")
			}
			return
		}
		cycles++
		if !cyclic || len(e.Problems) != 1 || e.Problems[0].Rule != graph.RuleCycle {
			t.Fatal(e)
		}
		names := strings.Split(strings.TrimPrefix(e.Problems[0].Message, "cycle: "), " → ")
		if len(names) < 3 || names[0] != names[len(names)-1] {
			t.Fatal(names)
		}
		for i := range len(names) - 1 {
			if !edge[names[i]+" "+names[i+1]] {
				t.Fatalf("%v: no edge %s → %s", names, names[i], names[i+1])
			}
		}
	})
	if cycles == 0 {
		t.Fatal("no cycle was ever drawn")
	}
}

func TestAddresses(t *testing.T) {
	for _, good := range []string{
		"http://a", "https://a.b-c_d/", "http://[::1]:80/x", "http://[2001:db8::1]", "http://[::ffff:1.2.3.4]/", "http://1.2.3.4:1",
		"http://a?x", "http://a#f", "http://a/%2F?b=%20", "http://bücher.example/",
	} {
		if err := graph.Validate(graphOf(call(good, nil))); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "a", "http:/a", "http://", "http:///x", "http://:80", "http://a:", "http://a:0", "http://a:65536", "http://a:x", "http://u:p@a",
		"http://[::1", "http://[1]", "http://[::1]x", "http://[1::2::3]", "http://[1:2:3:4:5:6:7:8:9]", "http://[::1.2.3]", "http://[::01.2.3.4]",
		"http://[1:2:3:4:5:6:7:]", "http://[:1:2:3:4:5:6:7]", "http://[fe80::1%25eth0]", "http://a b", "http://a\n", "http://a/%2", "http://a/%zz",
		"http://a%20b", "http://a<b", "http://\xff", "file:///etc/passwd", "http://" + strings.Repeat("a", 9000),
	} {
		if graph.Validate(graphOf(call(bad, nil))) == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// FuzzAddress: what is accepted, Go's parser takes too, with a host and without a user.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"http://a", "https://[::1]:1/%20?%20#%20", "http://[1:2:3:4:5:6:7:8]", "http://a\\b", "http://[1::]", "http://a/\"", "http://[1:2:3:4:5:6:1.2.3.4]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if graph.Validate(graphOf(call(s, nil))) != nil {
			return
		}
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if u.Hostname() == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			t.Fatalf("%q: %#v", s, u)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	plain := layered(100, 100)
	if n := len(plain.Nodes); n != 10_000 {
		b.Fatal(n)
	}
	near := layered(100, 100) // each node takes its predecessor's output
	far := layered(100, 100)  // each node takes something from all 50 layers before
	for i, n := range near.Nodes {
		if i >= 100 {
			n.Inputs = append(n.Inputs, fromNode("x", n.After[i%100]))
		}
	}
	for i, n := range far.Nodes {
		for back := 1; back <= 50 && i-back*100 >= 0; back++ {
			n.Inputs = append(n.Inputs, fromNode(fmt.Sprint("x", back), far.Nodes[i-back*100].Id))
		}
	}
	for _, c := range []struct {
		name string
		g    *perdurev1.Graph
	}{{"plain", plain}, {"near", near}, {"far", far}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if err := graph.Validate(c.g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
