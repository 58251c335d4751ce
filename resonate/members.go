package resonate

import (
	"bytes"
	"encoding/json"
)

// A body is checked once, by checkText. Its parts are then split without further checks: encoding/json would check each
// level again, which was a tenth of a node's CPU.

// members are the fields of a JSON object, in their order.
type members []member

type member struct {
	name  string
	value json.RawMessage
}

// get is the value of a field, nil if there is none. Of several with one name the last counts, as in encoding/json.
func (m members) get(name string) json.RawMessage {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].name == name {
			return m[i].value
		}
	}
	return nil
}

// membersOf splits an object, a part of valid JSON; ok is false for every other value.
func membersOf(raw json.RawMessage) (out members, ok bool) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false
	}
	out = make(members, 0, 8)
	for i := spaces(raw, 1); i < len(raw) && raw[i] == '"'; {
		end := valueEnd(raw, i)
		name, ok := textOf(raw[i:end])
		if !ok {
			return nil, false
		}
		i = spaces(raw, spaces(raw, end)+1) // behind the colon
		end = valueEnd(raw, min(i, len(raw)))
		out = append(out, member{name, raw[min(i, end):end:end]})
		i = spaces(raw, spaces(raw, end)+1) // behind the comma
	}
	return out, true
}

// elementsOf splits an array, a part of valid JSON; ok is false for every other value.
func elementsOf(raw json.RawMessage) (out []json.RawMessage, ok bool) {
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	for i := spaces(raw, 1); i < len(raw) && raw[i] != ']'; {
		end := valueEnd(raw, i)
		out = append(out, raw[i:end:end])
		i = spaces(raw, spaces(raw, end)+1) // behind the comma
	}
	return out, true
}

// textOf decodes a string, a part of valid JSON; ok is false for every other value.
func textOf(raw json.RawMessage) (s string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	return s, json.Unmarshal(raw, &s) == nil
}

// spaces is the first position from i on that is no white space.
func spaces(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\r' || raw[i] == '\t') {
		i++
	}
	return i
}

// valueEnd is the position behind the value that begins at i.
func valueEnd(raw []byte, i int) int {
	for depth := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(raw))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i
			}
		case ',', ':', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
	}
	return len(raw)
}
