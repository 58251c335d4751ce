package source

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
	"perdure/internal/near"
)

var (
	sourceKeys = []string{"node", "run", "value"}
	inputKeys  = []string{"node", "run", "value", "path", "type"}
)

// inputs reads the inputs of the node at.
func (r *reader) inputs(n *yaml.Node, at spot) []*perdurev1.NodeInput {
	var out []*perdurev1.NodeInput
	r.mapping(n, at.field("inputs", "inputs"), "a mapping of inputs", func(key, value *yaml.Node) {
		one := at.item("inputs", len(out), "inputs."+keyText(key.Value))
		r.mark(one, key.Line)
		r.mark(one.field("name", "name"), key.Line)
		in := r.input(value, one)
		in.Name = key.Value
		out = append(out, in)
	})
	return out
}

// input reads one input: a source, or a literal.
func (r *reader) input(n *yaml.Node, at spot) *perdurev1.NodeInput {
	out := &perdurev1.NodeInput{}
	if n = r.enter(n, at); n == nil {
		return out
	}
	if !r.isSource(n, at) {
		value := at.field("value", "value")
		value.path = at.path
		out.Source = &perdurev1.NodeInput_Value{Value: r.literal(n, value)}
		return out
	}
	from := "" // the key that names the source
	r.mapping(n, at, "an input", func(key, value *yaml.Node) {
		switch key.Value {
		case "node", "run", "value":
			if from != "" {
				r.report(RuleForm, key.Line, at, "an input comes from one source, not from both %s and %s", from, key.Value)
				return
			}
			from = key.Value
		}
		switch key.Value {
		case "node":
			out.Source = &perdurev1.NodeInput_Node{Node: r.text(value, at.field("node", "node"))}
		case "value":
			out.Source = &perdurev1.NodeInput_Value{Value: r.literal(value, at.field("value", "value"))}
		case "run":
			r.run(value, at, out)
		case "path":
			if out.Path != "" {
				r.report(RuleForm, key.Line, at.field("path", "path"), "the path is set at \"run\" already")
				return
			}
			out.Path = r.text(value, at.field("path", "path"))
		case "type":
			out.Type = perdurev1.ValueType(r.choice(value, at.field("type", "type"), typeWords))
		default:
			r.report(RuleKey, key.Line, at, "unknown key %q%s (a literal mapping that has %q is written {value: …})",
				key.Value, near.Hint(key.Value, inputKeys), from)
		}
	})
	return out
}

// run reads where in the run's input a value comes from: true is all of it.
func (r *reader) run(n *yaml.Node, at spot, out *perdurev1.NodeInput) {
	whole := at.field("run", "run")
	out.Source = &perdurev1.NodeInput_Run{Run: true}
	if n = r.enter(n, whole); n == nil {
		return
	}
	r.mark(whole, n.Line)
	switch {
	case n.Kind == yaml.ScalarNode && n.Style == 0 && n.Tag == "!!bool" && strings.EqualFold(n.Value, "true"):
	case isText(n) && out.Path != "":
		r.report(RuleForm, n.Line, whole, "the path is set at \"path\" already; write {run: true}")
	case isText(n) && n.Value != "":
		path := at.field("path", "run")
		r.mark(path, n.Line)
		out.Path = n.Value
	default:
		r.report(RuleForm, n.Line, whole, "expected true or a path, found %s", describe(n))
	}
}

// isSource reports whether an input is a source rather than a literal.
func (r *reader) isSource(n *yaml.Node, at spot) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	options, others := 0, ""
	line, count := 0, 0
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key := n.Content[i].Value; key {
		case "node", "run", "value":
			return true
		case "path", "type":
			options++
		default:
			others, line, count = key, n.Content[i].Line, count+1
		}
	}
	if options > 0 && count == 1 {
		if meant := near.Word(others, sourceKeys); meant != "" {
			r.report(RuleKey, line, at, "unknown key %q; did you mean %q? (if this is a literal, write {value: …})", others, meant)
		}
	}
	return false
}

// literal reads any value as JSON.
func (r *reader) literal(n *yaml.Node, at spot) []byte {
	r.mark(at, n.Line)
	var b bytes.Buffer
	r.json(&b, n, at)
	return b.Bytes()
}

func (r *reader) json(b *bytes.Buffer, n *yaml.Node, at spot) {
	if n = r.enter(n, at); n == nil {
		b.WriteString("null")
		return
	}
	r.depth++
	defer func() { r.depth-- }()
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		first := true
		r.entries(n, at, func(key, value *yaml.Node) {
			if !first {
				b.WriteByte(',')
			}
			first = false
			b.Write(graph.Quote(key.Value))
			b.WriteByte(':')
			r.json(b, value, at)
		})
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			r.json(b, item, at)
		}
		b.WriteByte(']')
	default:
		r.scalar(b, n, at)
	}
}

func (r *reader) scalar(b *bytes.Buffer, n *yaml.Node, at spot) {
	switch {
	case isText(n):
		b.Write(graph.Quote(n.Value))
	case isNull(n):
		b.WriteString("null")
	case isNumber(n.Value):
		b.WriteString(n.Value)
	case n.Tag == "!!bool":
		b.WriteString(strings.ToLower(n.Value))
	default:
		b.WriteString("null")
		r.report(RuleForm, n.Line, at, "%s is not a number that JSON knows; quote it if text is meant", n.Value)
	}
}
