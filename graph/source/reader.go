package source

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"perdure/graph"
	"perdure/internal/near"
)

const (
	// maxDepth bounds how deep a literal nests, aliases followed.
	maxDepth = 500
	// maxValues bounds the values of a file, aliases followed: what the largest graph needs, twice.
	maxValues = 4_000_000
)

// A reader converts a tree to a graph and records the problems.
type reader struct {
	file     string
	problems []Problem
	more     int
	faults   int             // problems of form, counted or described
	spoiled  map[string]bool // true: the pointer has a problem of form; false: something below it has one

	marks  map[string]mark // by pointer, as graph.FieldPath writes it
	depth  int             // how deep the literal nests here
	levels int             // how deep graphs nest here
	budget int             // values that may still be read
}

// A mark is where in the file a part of the graph came from.
type mark struct {
	line  int
	path  string
	items []int // the lines of a list's items, if it is one of plain text
}

// A spot is a part of the graph under its two names: in the graph, and in the file.
type spot struct{ pointer, path string }

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "." + b
}

// field is a field of a spot; key is what the file calls it.
func (s spot) field(name, key string) spot { return spot{join(s.pointer, name), join(s.path, key)} }

// item is one item of a repeated field; key is what the file calls the item, with the field.
func (s spot) item(name string, i int, key string) spot {
	return spot{join(s.pointer, name+"["+strconv.Itoa(i)+"]"), join(s.path, key)}
}

// keyText is a key in a path: quoted if it is not an ordinary name.
func keyText(key string) string {
	if len(key) > graph.MaxIDBytes {
		return strconv.Quote(key[:graph.MaxIDBytes]) + "…"
	}
	for i := range len(key) {
		c := key[i]
		if c <= ' ' || c >= 0x7f || c == '"' {
			return strconv.Quote(key)
		}
	}
	if key == "" {
		return `""`
	}
	return key
}

func (r *reader) mark(s spot, line int) { r.marks[s.pointer] = mark{line: line, path: s.path} }

// report notes a problem of form.
func (r *reader) report(rule string, line int, at spot, format string, args ...any) {
	r.faults++
	r.spoiled[at.pointer] = true
	for up := at.pointer; up != ""; {
		up = above(up)
		if _, known := r.spoiled[up]; !known {
			r.spoiled[up] = false // something below it is
		}
	}
	if len(r.problems) == maxProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, Problem{File: r.file, Line: max(line, 1), Path: at.path, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// adopt takes over a problem that graph.Validate found, unless its path is that of a problem of form, or
// above or below it: then it may be a consequence.
func (r *reader) adopt(p graph.Problem) {
	pointer := p.Path.Pointer()
	if _, near := r.spoiled[pointer]; near {
		return
	}
	for up := above(pointer); up != ""; up = above(up) {
		if r.spoiled[up] {
			return
		}
	}
	if len(r.problems) >= 2*maxProblems {
		r.more++
		return
	}
	out := Problem{File: r.file, Line: 1, Rule: p.Rule, Message: p.Message}
	for k := len(p.Path); k >= 0; k-- {
		m, ok := r.marks[p.Path[:k].Pointer()]
		if !ok && k > 0 {
			// An item of a list of plain text, of which only the list is marked.
			last := p.Path[k-1]
			list := append(p.Path[:k-1:k-1], graph.Step{Field: last.Field, Index: -1})
			if m, ok = r.marks[list.Pointer()]; ok && last.Index >= 0 && last.Index < len(m.items) {
				m.line, m.path = m.items[last.Index], m.path+"["+strconv.Itoa(last.Index)+"]"
			}
		}
		if ok {
			out.Line, out.Path = max(m.line, 1), m.path
			break
		}
	}
	r.problems = append(r.problems, out)
}

// above is the pointer of what holds the thing that a pointer leads to.
func above(pointer string) string {
	return pointer[:max(strings.LastIndexByte(pointer, '.'), strings.LastIndexByte(pointer, '['), 0)]
}

// enter counts a value and follows its alias; nil means that the value is not to be read.
func (r *reader) enter(n *yaml.Node, at spot) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	r.budget--
	switch {
	case r.budget == 0:
		r.report(RuleSize, n.Line, at, "the file has more than %d values, counting what aliases repeat", maxValues)
		return nil
	case r.budget < 0:
		return nil
	case r.depth >= maxDepth:
		if !r.spoiled[at.pointer] {
			r.report(RuleSize, n.Line, at, "the literal nests more than %d deep", maxDepth)
		}
		return nil
	case n.Style&yaml.TaggedStyle != 0 && (n.Kind != yaml.ScalarNode || n.Tag != "!!str"):
		r.report(RuleForm, n.Line, at, "the tag %s is not supported", n.Tag)
		return nil
	}
	return n
}

// describe says what a value is.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case isText(n):
		return "text"
	case n.Tag == "!!bool":
		return "the truth value " + n.Value
	}
	return "the number " + n.Value
}

// isText reports whether a scalar is text: quoted, or like nothing else. A date is text.
func isText(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	if n.Style != 0 {
		return true
	}
	switch n.Tag {
	case "!!null", "!!bool", "!!int", "!!float":
		return false
	}
	return !isNumber(n.Value)
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style == 0 && n.Tag == "!!null"
}

// isNumber reports whether text is a number of JSON.
func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && json.Valid([]byte(s)) && strings.TrimSpace(s) == s
}

// text reads text.
func (r *reader) text(n *yaml.Node, at spot) string {
	if n = r.enter(n, at); n == nil {
		return ""
	}
	r.mark(at, n.Line)
	if !isText(n) {
		hint := ""
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			hint = "; quote it if text is meant"
		}
		r.report(RuleForm, n.Line, at, "expected text, found %s%s", describe(n), hint)
		return ""
	}
	return n.Value
}

// truth reads true or false.
func (r *reader) truth(n *yaml.Node, at spot) bool {
	if n = r.enter(n, at); n == nil {
		return false
	}
	r.mark(at, n.Line)
	if n.Kind != yaml.ScalarNode || n.Style != 0 || n.Tag != "!!bool" {
		r.report(RuleForm, n.Line, at, "expected true or false, found %s", describe(n))
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// number reads a whole number from least on.
func (r *reader) number(n *yaml.Node, at spot, least uint32) uint32 {
	if n = r.enter(n, at); n == nil {
		return 0
	}
	r.mark(at, n.Line)
	if n.Kind != yaml.ScalarNode || n.Style != 0 || !isNumber(n.Value) {
		r.report(RuleForm, n.Line, at, "expected a whole number, found %s", describe(n))
		return 0
	}
	v, err := strconv.ParseUint(n.Value, 10, 32)
	if err != nil || v < uint64(least) {
		r.report(RuleForm, n.Line, at, "%s is not a whole number from %d to %d", n.Value, least, uint32(1<<32-1))
		return 0
	}
	return uint32(v)
}

// duration reads a duration in milliseconds.
func (r *reader) duration(n *yaml.Node, at spot) int64 {
	if n = r.enter(n, at); n == nil {
		return 0
	}
	r.mark(at, n.Line)
	switch {
	case n.Kind == yaml.ScalarNode && n.Style == 0 && isNumber(n.Value):
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			r.report(RuleForm, n.Line, at, "%s is not a whole number of milliseconds", n.Value)
		}
		return v
	case isText(n):
		ms, why := parseDuration(n.Value)
		if why != "" {
			r.report(RuleForm, n.Line, at, "%s %s", strconv.Quote(n.Value), why)
		}
		return ms
	}
	r.report(RuleForm, n.Line, at, "expected a duration such as 1m30s, or milliseconds, found %s", describe(n))
	return 0
}

// choice reads one of several words and answers its position.
func (r *reader) choice(n *yaml.Node, at spot, words []string) int {
	before := r.faults
	s := r.text(n, at)
	for i, w := range words {
		if s == w {
			return i
		}
	}
	if r.faults == before {
		r.report(RuleForm, r.marks[at.pointer].line, at, "%q is not one of %s%s", s, strings.Join(words, ", "), near.Hint(s, words))
	}
	return 0
}

// list calls each with the items of a list; a single value that is not a list counts as a list of one if
// single is set.
func (r *reader) list(n *yaml.Node, at spot, single bool, each func(i int, item *yaml.Node)) {
	if n = r.enter(n, at); n == nil {
		return
	}
	r.mark(at, n.Line)
	switch {
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			each(i, item)
		}
	case single && isText(n):
		each(0, n)
	default:
		r.report(RuleForm, n.Line, at, "expected a list, found %s", describe(n))
	}
}

// mapping calls each with the entries of a mapping; where names what this is.
func (r *reader) mapping(n *yaml.Node, at spot, where string, each func(key, value *yaml.Node)) {
	if n = r.enter(n, at); n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.report(RuleForm, n.Line, at, "expected %s, found %s", where, describe(n))
		return
	}
	r.entries(n, at, each)
}

// entries calls each with the entries of a mapping whose keys are in order.
func (r *reader) entries(n *yaml.Node, at spot, each func(key, value *yaml.Node)) {
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		line := n.Content[i].Line
		switch {
		case key.Kind != yaml.ScalarNode:
			r.report(RuleForm, line, at, "a key is text, not %s", describe(key))
			continue
		case key.Tag == "!!merge":
			r.report(RuleForm, line, at, "merge keys (<<) are not supported")
			continue
		}
		if first, twice := lines[key.Value]; twice {
			r.report(RuleTwice, line, at, "the key %q is in line %d already", key.Value, first)
			continue
		}
		lines[key.Value] = line
		each(&yaml.Node{Kind: yaml.ScalarNode, Value: key.Value, Line: line}, value)
	}
}

// synonyms are what other tools call a key.
var synonyms = map[string]string{
	"needs": "after", "dependson": "after", "depends_on": "after", "dependsOn": "after", "dependencies": "after",
	"fn": "function", "func": "function", "subgraph": "graph", "dag": "graph", "wait": "sleep", "delay": "sleep",
	"retries": "retry", "on_failure": "onFailure", "concurrency": "maxParallel", "steps": "nodes", "tasks": "nodes",
}

// unknown reports a key that is not one of known.
func (r *reader) unknown(key *yaml.Node, at spot, known []string) {
	hint := near.Hint(key.Value, known)
	if meant := synonyms[key.Value]; hint == "" {
		for _, k := range known {
			if k == meant {
				hint = fmt.Sprintf("; did you mean %q?", meant)
			}
		}
	}
	if hint == "" {
		hint = "; there are " + strings.Join(known, ", ")
	}
	r.report(RuleKey, key.Line, at, "unknown key %q%s", key.Value, hint)
}
