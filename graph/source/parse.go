package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

// MaxFileBytes bounds a file.
const MaxFileBytes = 32 << 20

// Parse reads a graph from the content of a file; name is how messages call the file. It returns a graph
// that passes graph.Validate, or an *Error that lists what is wrong.
func Parse(name string, content []byte) (*perdurev1.Graph, error) {
	r := &reader{file: name, marks: make(map[string]mark), spoiled: make(map[string]bool), budget: maxValues}
	root := r.load(content)
	if root == nil {
		return nil, r.err()
	}
	if root = r.enter(root, spot{}); root == nil {
		return nil, r.err()
	}
	if root.Kind != yaml.MappingNode {
		r.report(RuleForm, root.Line, spot{}, "expected a graph, which is a mapping with nodes, found %s", describe(root))
		return nil, r.err()
	}
	g := r.graph(root, spot{})
	for _, p := range graph.Problems(g) {
		r.adopt(p)
	}
	if len(r.problems) > 0 {
		return nil, r.err()
	}
	return g, nil
}

// err is what was found, by line.
func (r *reader) err() *Error {
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	e := &Error{Problems: r.problems, More: r.more}
	if over := len(e.Problems) - maxProblems; over > 0 {
		e.Problems = e.Problems[:maxProblems]
		e.More += over
	}
	return e
}

// load makes a tree of the file, or reports why not and returns nil.
func (r *reader) load(content []byte) *yaml.Node {
	if len(content) > MaxFileBytes {
		r.report(RuleSize, 1, spot{}, "the file has %d bytes, at most %d are allowed", len(content), MaxFileBytes)
		return nil
	}
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if !r.isText(content) {
		return nil
	}
	if start := bytes.TrimLeft(content, " \t\r\n"); len(start) > 0 && start[0] == '{' && json.Valid(content) {
		return fromJSON(content)
	}
	root, err := fromYAML(content)
	if err != nil {
		line, message := r.explain(content, err)
		r.report(RuleSyntax, line, spot{}, "%s", message)
	}
	return root
}

// isText reports what cannot be in a text file: bytes that are not UTF-8, control characters.
func (r *reader) isText(content []byte) bool {
	line := 1
	for i := 0; i < len(content); {
		c, size := utf8.DecodeRune(content[i:])
		switch {
		case c == utf8.RuneError && size == 1:
			r.report(RuleSyntax, line, spot{}, "the file is not in UTF-8")
			return false
		case c == '\n':
			line++
		case c < ' ' && c != '\t' && c != '\r' || c == 0x7f:
			r.report(RuleSyntax, line, spot{}, "the file has a control character, %U", c)
			return false
		}
		i += size
	}
	return true
}

// fromYAML reads the one document of a file.
func fromYAML(content []byte) (root *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil { // the library's own checks of itself
			root, err = nil, fmt.Errorf("%v", p)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	} else if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, fmt.Errorf("line %d: a second document; a file is one graph", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return document.Content[0], nil
}

var (
	withLine      = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
	// fromParser are the messages of the library's parser, which count lines from 0; its scanner counts from 1.
	fromParser = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',' or)`)
)

// explain takes the line out of the YAML reader's message; where it has none, it looks for it.
func (r *reader) explain(content []byte, err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	line = 1
	if m := withLine.FindStringSubmatch(message); m != nil {
		message = message[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		if fromParser.MatchString(message) {
			line++
		}
		line = min(line, bytes.Count(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))+1)
	} else if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		if i := bytes.Index(content, []byte("*"+m[1])); i >= 0 {
			line += bytes.Count(content[:i], []byte("\n"))
		}
	}
	return line, message
}

// fromJSON makes the same tree of valid JSON, which YAML does not quite cover: it has no surrogate pairs.
func fromJSON(content []byte) *yaml.Node {
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	j := &jsonTree{content: content, decoder: d, line: 1}
	return j.value(j.token())
}

// A jsonTree reads valid JSON.
type jsonTree struct {
	content []byte
	decoder *json.Decoder
	offset  int64 // up to where lines are counted
	line    int
}

func (j *jsonTree) token() json.Token {
	t, err := j.decoder.Token()
	if err != nil {
		return nil // not in valid JSON
	}
	end := j.decoder.InputOffset()
	j.line += bytes.Count(j.content[j.offset:end], []byte("\n"))
	j.offset = end
	return t
}

func (j *jsonTree) value(t json.Token) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: j.line}
	switch t := t.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if t == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for j.decoder.More() {
			n.Content = append(n.Content, j.value(j.token()))
		}
		j.token()
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!float", t.String()
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n
}
