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
// no output, since it was skipped, is null; one that is not JSON is a string of its base64.
//
// In place of a result of more than MaxResultBytes it returns the object of a [*TooLarge], which
// [ParseTooLarge] recognises: the run has completed, and the caller reads the output of each node
// (Graphs.GetOutcome, client.Client.NodeOutcome, durable.Outcome, perdure graph outcome).
func SinkOutputs(g *perdurev1.Graph, output func(node string) (value []byte, ok bool)) []byte {
	return OutputsOf(Sinks(g), output)
}

// OutputsOf is [SinkOutputs] of a graph with these sinks, which are sorted.
func OutputsOf(sinks []string, output func(node string) (value []byte, ok bool)) []byte {
	var o object
	size := int64(0)
	for _, id := range sinks {
		value := []byte(null)
		if v, ok := output(id); ok {
			value = AsJSON(v)
		}
		// A brace or a comma, the name and a colon before the value; the last brace is counted below.
		size += int64(len(Quote(id)) + len(value) + 2)
		if size+1 > MaxResultBytes {
			o = object{} // only its size matters from here on
			continue
		}
		o.add(id, value)
	}
	if size+1 > MaxResultBytes {
		return (&TooLarge{Bytes: size + 1}).encode()
	}
	return o.close()
}
