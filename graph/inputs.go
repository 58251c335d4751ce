package graph

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

const null = "null"

// ErrTooLarge is what Inputs returns when the object it makes has more than MaxInputBytes.
var ErrTooLarge = fmt.Errorf("graph: the inputs of the node have more than %d bytes", MaxInputBytes)

// Inputs is the JSON that a node gets: an object with one member for each input, in the order of their names,
// or null if the node has no inputs. Run is the input of the whole run, output the outputs of nodes: ok is
// false for one that was skipped. A missing or empty value becomes null; bytes that are not JSON become a
// string of their base64. Inputs calls output once for each node. An error is ErrTooLarge, or a *TooLarge for
// an input from a subgraph whose result is one, or says that Validate would refuse the node.
func Inputs(node *perdurev1.GraphNode, run []byte, output func(node string) (value []byte, ok bool)) ([]byte, error) {
	if len(node.GetInputs()) == 0 {
		return []byte(null), nil
	}
	byName := func(a, b *perdurev1.NodeInput) int { return strings.Compare(a.GetName(), b.GetName()) }
	inputs := node.GetInputs()
	if !slices.IsSortedFunc(inputs, byName) {
		inputs = slices.SortedStableFunc(slices.Values(inputs), byName)
	}
	var o object
	var ofRun *tree
	ofNode := make(map[string]*tree)
	for i, in := range inputs {
		refuse := func(why string) ([]byte, error) {
			return nil, fmt.Errorf("graph: node %s: the input %s %s", quoted(node.GetId()), quoted(in.GetName()), why)
		}
		if i > 0 && in.GetName() == inputs[i-1].GetName() {
			return refuse("is there twice")
		}
		if why := badPath(in.GetPath()); why != "" {
			return refuse("has a bad path: " + why)
		}
		var from *tree
		switch in.GetSource().(type) {
		case *perdurev1.NodeInput_Node:
			if from = ofNode[in.GetNode()]; from == nil {
				value, _ := output(in.GetNode())
				if too, ok := ParseTooLarge(value); ok {
					return nil, fmt.Errorf("graph: node %s: the input %s comes from node %s, which has none to give: %w",
						quoted(node.GetId()), quoted(in.GetName()), quoted(in.GetNode()), too)
				}
				from = &tree{raw: AsJSON(value)}
				ofNode[in.GetNode()] = from
			}
		case *perdurev1.NodeInput_Value:
			if !isJSON(in.GetValue()) {
				return refuse("is not JSON")
			}
			from = &tree{raw: trim(in.GetValue())}
		case *perdurev1.NodeInput_Run:
			if ofRun == nil {
				ofRun = &tree{raw: AsJSON(run)}
			}
			from = ofRun
		default:
			return refuse("comes from nowhere")
		}
		o.add(in.GetName(), from.at(in.GetPath()))
		if o.Len() >= MaxInputBytes {
			return nil, ErrTooLarge
		}
	}
	return o.close(), nil
}

// AsJSON is b itself, without white space around it, if it is one JSON value in UTF-8; null if it is empty;
// otherwise a JSON string of its bytes in base64 (RFC 4648, 4). The answer may share b's memory.
func AsJSON(b []byte) []byte {
	if len(b) == 0 {
		return []byte(null)
	}
	if isJSON(b) {
		return trim(b)
	}
	return []byte(`"` + base64.StdEncoding.EncodeToString(b) + `"`)
}

// trim takes away the white space of JSON around a value.
func trim(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

// A tree is a JSON value that finds its members once, on first use.
type tree struct {
	raw     []byte
	opened  bool
	members map[string]json.RawMessage
	items   []json.RawMessage
	below   map[string]*tree
}

// at follows a path; what is not there is null. Of a member that is there twice the last counts, as
// everywhere in Go.
func (t *tree) at(path string) []byte {
	if path == "" {
		return t.raw
	}
	for member := range strings.SplitSeq(path, ".") {
		if t = t.member(member); t == nil {
			return []byte(null)
		}
	}
	return t.raw
}

// member is one member of an object, or one item of an array by its position from 0; nil if it is not there.
func (t *tree) member(name string) *tree {
	if next, ok := t.below[name]; ok {
		return next
	}
	if !t.opened {
		t.opened = true
		switch t.raw[0] {
		case '{':
			if err := json.Unmarshal(t.raw, &t.members); err != nil {
				return nil // nested deeper than the decoder's limit
			}
		case '[':
			if err := json.Unmarshal(t.raw, &t.items); err != nil {
				return nil
			}
		}
		t.below = make(map[string]*tree)
	}
	raw := t.members[name]
	if i, err := strconv.ParseUint(name, 10, 31); err == nil && int(i) < len(t.items) {
		raw = t.items[i]
	}
	if len(raw) == 0 {
		return nil
	}
	next := &tree{raw: trim(raw)}
	t.below[name] = next
	return next
}

// An object is a JSON object while it is written.
type object struct{ bytes.Buffer }

func (o *object) add(name string, value []byte) {
	if o.Len() == 0 {
		o.WriteByte('{')
	} else {
		o.WriteByte(',')
	}
	o.Write(appendQuoted(o.AvailableBuffer(), name))
	o.WriteByte(':')
	o.Write(value)
}

func (o *object) close() []byte {
	if o.Len() == 0 {
		return []byte("{}")
	}
	o.WriteByte('}')
	return o.Bytes()
}

// Quote writes text as a JSON string. It escapes only what JSON requires, so people can read the text; bytes
// that are not UTF-8 become U+FFFD.
func Quote(s string) []byte { return appendQuoted(nil, s) }

// appendQuoted appends what Quote returns.
func appendQuoted(b []byte, s string) []byte {
	if needsNoEscape(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	var escaped bytes.Buffer
	e := json.NewEncoder(&escaped)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return append(b, `""`...) // text always has a form in JSON
	}
	return append(b, bytes.TrimSuffix(escaped.Bytes(), []byte("\n"))...)
}

// needsNoEscape reports whether a text is printable ASCII without quotes and backslashes.
func needsNoEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
