package resonate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// object reads the fields of a JSON object. Names are compared exactly, unlike encoding/json does for structs. The
// first field that is missing or of another type is kept as the error; later reads return zero values. An optional
// field may be null, which is the same as absent.
type object struct {
	what   string // in errors: "data", "head"
	fields members
	err    *Refusal
}

// checkText refuses a body that is not JSON, or whose strings no Go string can carry exactly: encoding/json replaces
// invalid UTF-8 and lone surrogates, and two ids would become one.
func checkText(body []byte) error {
	switch {
	case !utf8.Valid(body):
		return errors.New("body is not UTF-8")
	case !json.Valid(body):
		return errors.New("body is not JSON")
	case loneSurrogate(body):
		return errors.New("body has an escape of a lone surrogate")
	}
	return nil
}

// loneSurrogate reports whether valid JSON has a \u escape of one half of a surrogate pair.
func loneSurrogate(body []byte) bool {
	for i := bytes.IndexByte(body, '\\'); i >= 0 && i+1 < len(body); {
		if body[i] != '\\' {
			i++
			continue
		}
		if body[i+1] != 'u' {
			i += 2
			continue
		}
		switch unit := escapedUnit(body, i); {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return true
		case unit >= 0xD800 && unit <= 0xDBFF:
			if low := escapedUnit(body, i+6); low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 12
		default:
			i += 6
		}
	}
	return false
}

// escapedUnit is the UTF-16 unit of a \u escape at i; -1 if there is none.
func escapedUnit(body []byte, i int) int64 {
	if i+6 > len(body) || body[i] != '\\' || body[i+1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(body[i+2:i+6]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}

// newObject reads an object, a part of a body that checkText has admitted; what names it in errors.
func newObject(what string, raw json.RawMessage) *object {
	o := &object{what: what}
	fields, ok := membersOf(raw)
	if !ok {
		o.err = bad("%s must be an object", what)
	}
	o.fields = fields
	return o
}

func (o *object) fail(name, want string) {
	if o.err == nil {
		o.err = bad("%s.%s must be %s", o.what, name, want)
	}
}

// has reports whether the field is present and not null.
func (o *object) has(name string) bool {
	raw := o.fields.get(name)
	return raw != nil && string(raw) != "null"
}

func (o *object) text(name string) string {
	s, ok := textOf(o.fields.get(name))
	if !ok {
		o.fail(name, "a string")
	}
	return s
}

func (o *object) optionalText(name string) string {
	if !o.has(name) {
		return ""
	}
	return o.text(name)
}

// id reads the id of an object: not empty, without NUL.
func (o *object) id(name string) string {
	s := o.text(name)
	switch {
	case o.err != nil:
	case s == "":
		o.fail(name, "a non-empty string")
	case strings.IndexByte(s, 0) >= 0:
		o.fail(name, "a string without NUL")
	}
	return s
}

// number reads a number of at least least and at most 2^53-1. Fractions are cut off if floor says so, else refused.
func (o *object) number(name string, least int64, floor bool) int64 {
	want := fmt.Sprintf("an integer of %d to %d", least, maxMS)
	raw := string(o.fields.get(name))
	if n, err := strconv.ParseInt(raw, 10, 64); err == nil {
		if n < least || n > maxMS {
			o.fail(name, want)
			return 0
		}
		return n
	}
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil || raw == "" || raw[0] == '"' || !(f >= float64(least) && f <= float64(maxMS)) || (!floor && f != math.Trunc(f)) {
		o.fail(name, want)
		return 0
	}
	return int64(math.Floor(f))
}

// texts reads an optional object of strings; never nil.
func (o *object) texts(name string) map[string]string {
	out := map[string]string{}
	if !o.has(name) {
		return out
	}
	fields := newObject(name, o.fields.get(name))
	for _, f := range fields.fields {
		s, ok := textOf(f.value)
		if !ok {
			fields.err = bad("is not strings")
			break
		}
		out[f.name] = s
	}
	if fields.err != nil {
		o.fail(name, "an object of strings")
	}
	return out
}

// value reads an optional value; absent is the empty one.
func (o *object) value(name string) Value {
	if !o.has(name) {
		return Value{}
	}
	fields := newObject(o.what+"."+name, o.fields.get(name))
	var v Value
	if fields.has("headers") {
		v.Headers = fields.texts("headers")
	}
	if fields.has("data") {
		data := fields.text("data")
		v.Data = &data
	}
	if o.err == nil {
		o.err = fields.err
	}
	return v
}

// list reads a required array.
func (o *object) list(name string) []json.RawMessage {
	out, ok := elementsOf(o.fields.get(name))
	if !ok {
		o.fail(name, "an array")
	}
	return out
}
