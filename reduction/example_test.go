package reduction_test

import (
	"fmt"

	"perdure/reduction"
)

// A graph is written with few words, and what cannot run is refused by name.
func ExampleLower() {
	build := reduction.Layered([]reduction.NodeID{"fetch"}, []reduction.NodeID{"compile", "lint"}, []reduction.NodeID{"publish"})
	r, err := reduction.Lower(reduction.Overlay(build, reduction.EdgeOf("fetch", "notify")))
	fmt.Println(r.Topological(), err)
	fmt.Println(r.Predecessors("publish"), r.Successors("fetch"))
	_, err = reduction.Lower(reduction.Overlay(build, reduction.EdgeOf("publish", "compile")))
	fmt.Println(err)
	// Output:
	// [fetch compile lint notify publish] <nil>
	// [compile lint] [compile lint notify]
	// reduction: acyclic: "compile" → "publish" → "compile"
}

// The three phases on values: what a run does next follows from what its nodes have come to.
func ExampleReduce() {
	r, _ := reduction.Lower(reduction.Path("order", "approve", "ship"))
	s := reduction.Initial(r)
	for _, result := range []reduction.Result{
		{Node: "order", Outcome: reduction.Succeeded{Output: []byte("42")}},
		{Node: "ship", Outcome: reduction.Succeeded{}},
		{Node: "approve", Outcome: reduction.SuspendedOn{Signal: "approval"}},
	} {
		next, step, err := reduction.Reduce(r, s, result)
		if err != nil {
			fmt.Println("refused:", err)
			continue
		}
		s = next
		fmt.Println(step.Phase(), step)
	}
	s, step, _ := reduction.Recover(r, s, reduction.BySignal(map[string][]byte{"approval": []byte("yes")}))
	fmt.Println(step.Phase(), step, string(s.Outputs["approve"]))
	// Output:
	// Progressing {[approve]}
	// refused: reduction: predecessors_satisfied: node "ship" is Pending, and "approve" before it is not done
	// Suspended {[{approve approval}]}
	// Progressing {[ship]} yes
}

// An engine reports the changes of each fact, and reverts those that its caller does not commit.
func ExampleEngine() {
	r, _ := reduction.Lower(reduction.Overlay(reduction.Star("a", "b", "c"), reduction.Path("b", "d", "e")))
	e, _ := reduction.NewEngine(r, reduction.Initial(r))
	delta, _ := e.Apply(reduction.Result{Node: "a", Outcome: reduction.Skipped{}})
	fmt.Println(delta.Ready, delta.Phase)

	e.Begin()
	delta, _ = e.Apply(reduction.Result{Node: "b", Outcome: reduction.NodeTimedOut{}})
	for _, c := range delta.Changed {
		fmt.Println(" ", c.Node, c.From, "→", c.To)
	}
	e.Rollback()

	fmt.Println(e.Status("b"), e.Frontier())
	// Output:
	// [b c] Progressing
	//   b Pending → Failed
	//   d Pending → Failed
	//   e Pending → Failed
	// Pending [b c]
}
