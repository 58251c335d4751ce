package graph

import (
	"slices"

	perdurev1 "perdure/api/perdure/v1"
)

// Sinks are the nodes that no other node comes after, sorted by id. Their outputs are the result of a run.
func Sinks(g *perdurev1.Graph) []string {
	followed := make(map[string]bool, len(g.GetNodes()))
	for _, n := range g.GetNodes() {
		for _, id := range n.GetAfter() {
			followed[id] = true
		}
	}
	var out []string
	for _, n := range g.GetNodes() {
		if !followed[n.GetId()] {
			out = append(out, n.GetId())
		}
	}
	slices.Sort(out)
	return out
}

// SinkOutputs is the result of a run: a JSON object with the output of each sink, sorted by id. One that has
// no output, since it was skipped, is null; one that is not JSON is a string of its base64. The caller bounds
// the size of what it hands in.
func SinkOutputs(g *perdurev1.Graph, output func(node string) (value []byte, ok bool)) []byte {
	var o object
	for _, id := range Sinks(g) {
		value := []byte(null)
		if v, ok := output(id); ok {
			value = AsJSON(v)
		}
		o.add(id, value)
	}
	return o.close()
}
