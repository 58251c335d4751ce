package source_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"perdure/graph/source"
)

// A checker knows the part of JSON Schema that the schema uses, and refuses to know less.
type checker struct{ root map[string]any }

func newChecker() (*checker, error) {
	c := &checker{}
	return c, json.Unmarshal(source.Schema(), &c.root)
}

// check says why value does not fit a schema, or "".
func (c *checker) check(schema map[string]any, value any, at string) string {
	known := []string{"$schema", "$id", "$defs", "title", "description"}
	// Properties that additionalProperties does not reach.
	properties, _ := schema["properties"].(map[string]any)
	for keyword, arg := range schema {
		var why string
		switch keyword {
		case "$ref":
			var target any = c.root
			for name := range strings.SplitSeq(strings.TrimPrefix(arg.(string), "#/"), "/") {
				target = target.(map[string]any)[name]
			}
			why = c.check(target.(map[string]any), value, at)
		case "type":
			if !hasType(value, arg.(string)) {
				why = fmt.Sprintf("is %T, not %s", value, arg)
			}
		case "enum":
			if !slices.ContainsFunc(arg.([]any), func(a any) bool { return reflect.DeepEqual(a, value) }) {
				why = "is none of the values"
			}
		case "const":
			if !reflect.DeepEqual(arg, value) {
				why = "is not the value"
			}
		case "not":
			if c.check(arg.(map[string]any), value, at) == "" {
				why = fmt.Sprintf("fits %v", arg)
			}
		case "allOf", "oneOf":
			fits := 0
			var reasons []string
			for _, s := range arg.([]any) {
				if w := c.check(s.(map[string]any), value, at); w == "" {
					fits++
				} else {
					reasons = append(reasons, w)
				}
			}
			if keyword == "allOf" && len(reasons) > 0 || keyword == "oneOf" && fits != 1 {
				why = fmt.Sprintf("fits %d: %s", fits, strings.Join(reasons, " | "))
			}
		default:
			var ok bool
			if why, ok = c.part(keyword, arg, value, properties, at); !ok && !slices.Contains(known, keyword) {
				panic("the checker does not know " + keyword)
			}
		}
		if why != "" {
			return at + ": " + keyword + ": " + why
		}
	}
	return ""
}

// part is check for what concerns one kind of value only.
func (c *checker) part(keyword string, arg, value any, properties map[string]any, at string) (why string, known bool) {
	text, isText := value.(string)
	number, isNumber := value.(float64)
	list, isList := value.([]any)
	object, isObject := value.(map[string]any)
	bound, _ := arg.(float64)
	applies, bad := false, false
	switch keyword {
	case "minLength":
		applies, bad = isText, utf8.RuneCountInString(text) < int(bound)
	case "maxLength":
		applies, bad = isText, utf8.RuneCountInString(text) > int(bound)
	case "pattern":
		applies, bad = isText, !regexp.MustCompile(arg.(string)).MatchString(text)
	case "minimum":
		applies, bad = isNumber, number < bound
	case "maximum":
		applies, bad = isNumber, number > bound
	case "minItems":
		applies, bad = isList, len(list) < int(bound)
	case "maxItems":
		applies, bad = isList, len(list) > int(bound)
	case "uniqueItems":
		for i, item := range list {
			bad = bad || slices.ContainsFunc(list[:i], func(other any) bool { return reflect.DeepEqual(item, other) })
		}
		applies = isList
	case "minProperties":
		applies, bad = isObject, len(object) < int(bound)
	case "maxProperties":
		applies, bad = isObject, len(object) > int(bound)
	case "required":
		for _, name := range arg.([]any) {
			_, has := object[name.(string)]
			bad = bad || !has
		}
		applies = isObject
	case "items":
		for i, item := range list {
			if why := c.check(arg.(map[string]any), item, fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why, true
			}
		}
	case "properties":
		for name, s := range properties {
			if v, has := object[name]; has {
				if why := c.check(s.(map[string]any), v, at+"."+name); why != "" {
					return why, true
				}
			}
		}
	case "propertyNames":
		for name := range object {
			if why := c.check(arg.(map[string]any), name, at+" name "+name); why != "" {
				return why, true
			}
		}
	case "additionalProperties":
		for name, v := range object {
			if _, has := properties[name]; has {
				continue
			}
			if arg == false {
				return "unknown " + name, true
			}
			if why := c.check(arg.(map[string]any), v, at+"."+name); why != "" {
				return why, true
			}
		}
	default:
		return "", false
	}
	if applies && bad {
		return fmt.Sprintf("%v does not hold", arg), true
	}
	return "", true
}

func hasType(value any, name string) bool {
	switch v := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

// jsonOf turns YAML into the JSON that a schema validates. Keys are text, as in the file form.
func jsonOf(n *yaml.Node) any {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any)
		for i := 0; i+1 < len(n.Content); i += 2 {
			out[n.Content[i].Value] = jsonOf(n.Content[i+1])
		}
		return out
	case yaml.SequenceNode:
		out := []any{}
		for _, item := range n.Content {
			out = append(out, jsonOf(item))
		}
		return out
	}
	var number float64
	if n.Style == 0 && (n.Tag == "!!int" || n.Tag == "!!float") && n.Decode(&number) == nil {
		return number
	}
	switch {
	case n.Style == 0 && n.Tag == "!!bool":
		return strings.EqualFold(n.Value, "true")
	case n.Style == 0 && n.Tag == "!!null":
		return nil
	}
	return n.Value
}

// fits says why a file does not fit the schema, or "".
func fits(content []byte) (why string, err error) {
	c, err := newChecker()
	if err != nil {
		return "", err
	}
	var document yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(content)).Decode(&document); err != nil {
		return "", err
	}
	return c.check(c.root, jsonOf(document.Content[0]), "file"), nil
}

// checkSchema fails if a canonical file does not fit the schema.
func checkSchema(t interface{ Fatalf(string, ...any) }, content []byte) {
	if why, err := fits(content); err != nil || why != "" {
		t.Fatalf("the schema refuses: %s %v\n%s", why, err, content)
	}
}

// TestSchema: the schema accepts every good file. Of the bad ones it refuses those whose form is wrong, and
// accepts those that say so in their first line.
func TestSchema(t *testing.T) {
	corpus(t, "good", func(name string, content []byte) {
		if strings.HasSuffix(name, ".json") {
			c, err := newChecker()
			var value any
			if err == nil {
				err = json.Unmarshal(content, &value)
			}
			if err != nil {
				t.Fatal(err)
			}
			if why := c.check(c.root, value, "file"); why != "" {
				t.Errorf("%s: %s", name, why)
			}
			return
		}
		if why, err := fits(content); err != nil || why != "" {
			t.Errorf("%s: %s %v", name, why, err)
		}
	})
	refused, accepted := 0, 0
	corpus(t, "bad", func(name string, content []byte) {
		if slices.Contains([]string{"endless.yaml", "deep.yaml", "yaml.yaml", "twice.yaml", "twice.json", "documents.yaml"}, name) {
			return // what is wrong is lost on the way to values
		}
		why, err := fits(content)
		if err != nil {
			return // no YAML: there is nothing to validate
		}
		if accepts := bytes.HasPrefix(content, []byte("# schema: accepts\n")); accepts == (why != "") {
			t.Errorf("%s: the schema says %q", name, why)
		} else if accepts {
			accepted++
		} else {
			refused++
		}
	})
	if refused < 5 || accepted < 3 {
		t.Errorf("%d refused, %d accepted", refused, accepted)
	}
}

// TestSchemaRefusesEachMistake plants one mistake at a time in a good file.
func TestSchemaRefusesEachMistake(t *testing.T) {
	const good = `{name: x, nodes: {a: {function: f}, b: {http: {url: "http://a"}, after: [a], inputs: {x: {node: a, type: any}}, retry: {attempts: 2, initial: 1s}, timeout: 5}}}`
	if why, err := fits([]byte(good)); why != "" || err != nil {
		t.Fatal(why, err)
	}
	for _, c := range [][2]string{
		{"name: x", "name: 3"}, {"name: x", "nam: x"}, {"name: x", "maxParallel: -1"}, {"name: x", "maxParallel: 1.5"}, {"name: x", "wave: 1"},
		{"{a:", "{a b:"}, {"function: f", "function: $f"}, {"function: f", `function: ""`}, {"function: f", "function: f, sleep: 1s"}, {"function: f", "sleep: 0"},
		{"function: f", "sleep: 1x"}, {"function: f", "signal: s, inputs: {x: 1}"}, {"function: f", "graph: {}"}, {"function: f", "id: a, function: f"}, {"function: f", "output: text"},
		{"function: f", "onFailure: no"}, {"http://a", "ftp://a"}, {"http://a", "http://"}, {`url: "http://a"`, "method: GET"}, {`url: "http://a"`, `url: "http://a", method: "A B"`},
		{"after: [a]", "after: [a, a]"}, {"after: [a]", "after: {a: 1}"}, {"node: a, type: any", "node: a, run: true"}, {"node: a, type: any", "run: false"}, {"node: a, type: any", "node: a, x: 1"},
		{"node: a, type: any", "node: a, path: a..b"}, {"node: a, type: any", "node: a, type: x"}, {"attempts: 2", "attempts: 0"}, {"initial: 1s", "initial: 0"}, {"attempts: 2", "factor: 11"},
		{"timeout: 5", "timeout: -5"}, {"timeout: 5", "timeout: 1.5"}, {"timeout: 5", "timeout: true"},
	} {
		bad := strings.Replace(good, c[0], c[1], 1)
		if bad == good {
			t.Fatalf("%q is not there", c[0])
		}
		if why, err := fits([]byte(bad)); why == "" || err != nil {
			t.Errorf("the schema accepts %s (%v)", bad, err)
		}
		if _, err := source.Parse("f", []byte(bad)); err == nil {
			t.Errorf("Parse accepts %s", bad)
		}
	}
}
