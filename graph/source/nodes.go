package source

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

// The keys of each mapping, in the order in which Format writes them.
var (
	graphKeys = []string{"name", "maxParallel", "wave", "nodes"}
	kindKeys  = []string{"function", "http", "signal", "sleep", "graph"}
	nodeKeys  = append(kindKeys[:len(kindKeys):len(kindKeys)], "after", "inputs", "retry", "timeout", "onFailure", "output")
	httpKeys  = []string{"url", "method", "headers", "sendInputs"}
	retryKeys = []string{"attempts", "initial", "max", "factor"}

	failureWords = []string{"propagate", "skip"} // by perdurev1.OnFailure
	typeWords    = []string{"any", "object", "array", "string", "number", "bool"}
)

// graph reads a graph or a subgraph.
func (r *reader) graph(n *yaml.Node, at spot) *perdurev1.Graph {
	g := &perdurev1.Graph{}
	r.mark(at, n.Line)
	if r.levels > graph.MaxDepth {
		return g // Validate says that this is too deep, whatever it is
	}
	r.levels++
	defer func() { r.levels-- }()
	r.mapping(n, at, "a graph, which is a mapping with nodes", func(key, value *yaml.Node) {
		switch key.Value {
		case "name":
			g.Name = r.text(value, at.field("name", "name"))
		case "maxParallel":
			g.MaxParallel = r.number(value, at.field("max_parallel", "maxParallel"), 0)
		case "wave":
			g.Wave = r.truth(value, at.field("wave", "wave"))
		case "nodes":
			r.mark(at.field("nodes", "nodes"), key.Line)
			g.Nodes = r.nodes(value, at)
		default:
			r.unknown(key, at, graphKeys)
		}
	})
	return g
}

// nodes reads a mapping of ids to nodes, or a list of nodes; at is the graph.
func (r *reader) nodes(n *yaml.Node, at spot) []*perdurev1.GraphNode {
	var out []*perdurev1.GraphNode
	whole := at.field("nodes", "nodes")
	if n.Kind == yaml.SequenceNode || n.Kind == yaml.AliasNode && n.Alias.Kind == yaml.SequenceNode {
		r.list(n, whole, false, func(i int, item *yaml.Node) {
			out = append(out, r.node(item, at.item("nodes", i, "nodes["+strconv.Itoa(i)+"]"), nil))
		})
		return out
	}
	r.mapping(n, whole, "nodes, which are a mapping or a list", func(key, value *yaml.Node) {
		out = append(out, r.node(value, at.item("nodes", len(out), "nodes."+keyText(key.Value)), key))
	})
	return out
}

// node reads one node; id is its key, nil in a list.
func (r *reader) node(n *yaml.Node, at spot, id *yaml.Node) *perdurev1.GraphNode {
	out := &perdurev1.GraphNode{}
	r.mark(at, n.Line)
	keys := nodeKeys
	if id != nil {
		out.Id = id.Value
		r.mark(at, id.Line)
		r.mark(at.field("id", "id"), id.Line)
	} else {
		keys = append([]string{"id"}, nodeKeys...)
	}
	kind := "" // the key that says what the node is
	r.mapping(n, at, "a node, which is a mapping", func(key, value *yaml.Node) {
		for _, k := range kindKeys {
			if k != key.Value {
				continue
			}
			if kind != "" {
				r.report(RuleForm, key.Line, at, "a node is one of %s, not both %s and %s", strings.Join(kindKeys, ", "), kind, k)
				return
			}
			kind = k
		}
		switch key.Value {
		case "id":
			if id != nil {
				r.unknown(key, at, keys)
				return
			}
			out.Id = r.text(value, at.field("id", "id"))
		case "function":
			name := r.text(value, at.field("function.function", "function"))
			out.Kind = &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: name}}
		case "http":
			out.Kind = &perdurev1.GraphNode_Http{Http: r.call(value, at.field("http", "http"))}
		case "signal":
			name := r.text(value, at.field("signal.name", "signal"))
			out.Kind = &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: name}}
		case "sleep":
			ms := r.duration(value, at.field("sleep.duration_ms", "sleep"))
			out.Kind = &perdurev1.GraphNode_Sleep{Sleep: &perdurev1.SleepNode{DurationMs: ms}}
		case "graph":
			out.Kind = &perdurev1.GraphNode_Subgraph{Subgraph: r.graph(value, at.field("subgraph", "graph"))}
		case "after":
			out.After = r.after(value, at.field("after", "after"))
		case "inputs":
			r.mark(at.field("inputs", "inputs"), key.Line)
			out.Inputs = r.inputs(value, at)
		case "retry":
			out.Retry = r.retry(value, at.field("retry", "retry"))
		case "timeout":
			out.TimeoutMs = r.duration(value, at.field("timeout_ms", "timeout"))
		case "onFailure":
			out.OnFailure = perdurev1.OnFailure(r.choice(value, at.field("on_failure", "onFailure"), failureWords))
		case "output":
			out.Output = perdurev1.ValueType(r.choice(value, at.field("output", "output"), typeWords))
		default:
			r.unknown(key, at, keys)
		}
	})
	return out
}

// after reads the ids of predecessors. There may be very many, so they share one mark.
func (r *reader) after(n *yaml.Node, at spot) []string {
	var out []string
	var lines []int
	r.list(n, at, true, func(i int, item *yaml.Node) {
		item = r.enter(item, at)
		if item == nil {
			return
		}
		if !isText(item) {
			r.report(RuleForm, item.Line, at, "expected the id of a node, found %s; quote it if text is meant", describe(item))
			return
		}
		out = append(out, item.Value)
		lines = append(lines, item.Line)
	})
	m := r.marks[at.pointer]
	m.items = lines
	r.marks[at.pointer] = m
	return out
}

func (r *reader) call(n *yaml.Node, at spot) *perdurev1.HttpNode {
	out := &perdurev1.HttpNode{}
	r.mark(at, n.Line)
	r.mapping(n, at, "a mapping with url", func(key, value *yaml.Node) {
		switch key.Value {
		case "url":
			out.Url = r.text(value, at.field("url", "url"))
		case "method":
			out.Method = r.text(value, at.field("method", "method"))
		case "headers":
			fields := at.field("headers", "headers")
			r.mark(fields, key.Line)
			out.Headers = make(map[string]string)
			r.mapping(value, fields, "a mapping of header fields", func(key, value *yaml.Node) {
				one := spot{fields.pointer + "[" + strconv.Quote(key.Value) + "]", fields.path + "." + keyText(key.Value)}
				out.Headers[key.Value] = r.text(value, one)
			})
		case "sendInputs":
			out.SendInputs = r.truth(value, at.field("send_inputs", "sendInputs"))
		default:
			r.unknown(key, at, httpKeys)
		}
	})
	return out
}

func (r *reader) retry(n *yaml.Node, at spot) *perdurev1.NodeRetry {
	out := &perdurev1.NodeRetry{}
	r.mark(at, n.Line)
	// pause reads a pause. In a message 0 means the default; in a file it is a mistake.
	pause := func(value *yaml.Node, at spot) int64 {
		before := r.faults
		ms := r.duration(value, at)
		if ms == 0 && r.faults == before {
			r.report(RuleForm, value.Line, at, "a pause of 0; leave it out for the default")
		}
		return ms
	}
	r.mapping(n, at, "a mapping with attempts", func(key, value *yaml.Node) {
		switch key.Value {
		case "attempts":
			out.Attempts = r.number(value, at.field("attempts", "attempts"), 1)
		case "initial":
			out.InitialMs = pause(value, at.field("initial_ms", "initial"))
		case "max":
			out.MaxMs = pause(value, at.field("max_ms", "max"))
		case "factor":
			out.FactorPercent = r.factor(value, at.field("factor_percent", "factor"))
		default:
			r.unknown(key, at, retryKeys)
		}
	})
	return out
}

// factor reads a number with at most two decimals, in percent.
func (r *reader) factor(n *yaml.Node, at spot) uint32 {
	if n = r.enter(n, at); n == nil {
		return 0
	}
	r.mark(at, n.Line)
	if n.Kind != yaml.ScalarNode || n.Style != 0 || !isNumber(n.Value) {
		r.report(RuleForm, n.Line, at, "expected a number such as 2 or 1.5, found %s", describe(n))
		return 0
	}
	whole, decimals, _ := strings.Cut(n.Value, ".")
	decimals = strings.TrimRight(decimals, "0")
	percent, err := strconv.ParseUint(whole+(decimals + "00")[:2], 10, 32)
	if err != nil || len(decimals) > 2 || percent == 0 {
		r.report(RuleForm, n.Line, at, "%s is not a number from 1 to 10 with at most two decimals", n.Value)
		return 0
	}
	return uint32(percent)
}
