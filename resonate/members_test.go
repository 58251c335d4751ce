package resonate

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawJSON draws a JSON value with white space anywhere, names that come twice, and escapes.
func drawJSON(t *rapid.T, depth int) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r "}).Draw(t, "space") }
	text := func() string {
		return rapid.SampledFrom([]string{`""`, `"a"`, `"b"`, `"a,b:c"`, `"{"`, `"]}"`, `"\""`, `"\\"`, `"\\\""`, `"\u0061"`, `"ä\n😀"`, `"\ud83d\ude00"`}).Draw(t, "text")
	}
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	out := ""
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return text()
	case 1:
		return rapid.SampledFrom([]string{"0", "-1.5e+3", "12"}).Draw(t, "number")
	case 2:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 3:
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if i > 0 {
				out += "," + space()
			}
			out += drawJSON(t, depth-1) + space()
		}
		return "[" + space() + out + "]"
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "members") {
		if i > 0 {
			out += "," + space()
		}
		out += text() + space() + ":" + space() + drawJSON(t, depth-1) + space()
	}
	return "{" + space() + out + "}"
}

// Objects, arrays and strings are split and decoded as encoding/json does.
func TestMembersTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkTwin(t, drawJSON(t, 3)) })
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkTwin compares valid JSON, and what is in it.
func checkTwin(t failer, text string) {
	t.Helper()
	raw := json.RawMessage(text)
	var object map[string]json.RawMessage
	var array []json.RawMessage
	var s string
	isObject, isArray := json.Unmarshal(raw, &object) == nil && raw[0] == '{', json.Unmarshal(raw, &array) == nil && raw[0] == '['
	isText := json.Unmarshal(raw, &s) == nil && raw[0] == '"'
	fields, ok := membersOf(raw)
	if ok != isObject {
		t.Fatalf("%s: an object: %t", text, ok)
	}
	found := map[string]json.RawMessage{}
	for _, f := range fields {
		found[f.name] = fields.get(f.name)
		checkTwin(t, string(f.value))
	}
	if isObject && !reflect.DeepEqual(found, object) {
		t.Fatalf("%s: fields %q, must be %q", text, found, object)
	}
	elements, ok := elementsOf(raw)
	if ok != isArray || len(elements) != len(array) || len(array) > 0 && !reflect.DeepEqual(elements, array) {
		t.Fatalf("%s: elements %q, must be %q", text, elements, array)
	}
	for _, e := range elements {
		checkTwin(t, string(e))
	}
	if got, ok := textOf(raw); ok != isText || got != s {
		t.Fatalf("%s: text %q, must be %q", text, got, s)
	}
}

// memberSeeds are JSON and what is nearly JSON.
var memberSeeds = []string{`{"a":1,"a":[{"b":"\\\""}]}`, `{"a" : "\"," , "b":{}}`, `[1 , {}, "]"]`, `"\u0061\"\\"`, `{"a"`, `{"a":`, `["`, `{"\`, `{"a":1]}`}

// TestMembers: of several fields with one name the last counts, escapes are decoded, and none ends a string.
func TestMembers(t *testing.T) {
	for _, text := range memberSeeds {
		if json.Valid([]byte(text)) {
			checkTwin(t, text)
		}
	}
}

// FuzzMembers: what is valid JSON is split as encoding/json does, and nothing else makes the functions panic.
func FuzzMembers(f *testing.F) {
	for _, seed := range memberSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if checkText([]byte(text)) == nil {
			if trimmed := trimmed(text); trimmed != "" {
				checkTwin(t, trimmed)
			}
			return
		}
		_, _ = membersOf(json.RawMessage(text))
		_, _ = elementsOf(json.RawMessage(text))
		_, _ = textOf(json.RawMessage(text))
	})
}

// trimmed is JSON without white space around it.
func trimmed(text string) string {
	raw := []byte(text)
	i := spaces(raw, 0)
	return string(raw[i:valueEnd(raw, i)])
}
