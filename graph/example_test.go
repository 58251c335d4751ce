package graph_test

import (
	"fmt"

	"perdure/graph"
)

func ExampleValidate() {
	g := graphOf(node("parse"), node("check", "prase"), node("a", "b"), node("b", "a"))
	fmt.Println(graph.Validate(g))
	// Output:
	// graph: 2 problems:
	//   nodes[1] (id "check").after[0]: there is no node "prase"; did you mean "parse"?
	//   nodes[2] (id "a").after[0]: cycle: a → b → a
}

func ExampleInputs() {
	n := takes(node("check", "parse"), typed(fromNode("rows", "parse"), "rows", 0), fromRun("file", "name"), fromValue("limit", "1.50"))
	in, err := graph.Inputs(n, []byte(`{"name": "a.csv"}`), func(string) ([]byte, bool) { return []byte(`{"rows": [1, 2.0]}`), true })
	fmt.Println(string(in), err)
	// Output: {"file":"a.csv","limit":1.50,"rows":[1, 2.0]} <nil>
}
