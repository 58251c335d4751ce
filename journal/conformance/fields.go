package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"perdure/id"
)

// fields is one JSON object of the protocol. Every field of an event is always present (K15), so a missing
// field, or one of another type, makes the object unreadable. fields keeps the first such problem and
// continues with zero values, so that a caller checks once, at the end.
type fields struct {
	raw     map[string]json.RawMessage
	problem error
}

func parseObject(text []byte) (*fields, error) {
	f := &fields{}
	if err := json.Unmarshal(text, &f.raw); err != nil {
		return nil, err
	}
	if f.raw == nil {
		return nil, errors.New("conformance: null is not an object")
	}
	return f, nil
}

// value reads a field into v, which stays zero on a problem.
func (f *fields) value(name string, v any) {
	text, present := f.raw[name]
	var err error
	switch {
	case !present || string(text) == "null":
		err = errors.New("missing")
	default:
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		f.fail(name, err)
	}
}

func (f *fields) fail(name string, err error) {
	if f.problem == nil {
		f.problem = fmt.Errorf("conformance: field %q: %w", name, err)
	}
}

func (f *fields) text(name string) string {
	var s string
	f.value(name, &s)
	return s
}

func (f *fields) bytes(name string) []byte { return []byte(f.text(name)) }

func (f *fields) integer(name string) int64 {
	var n int64
	f.value(name, &n)
	return n
}

// unsigned reads an integer from 0 below 2^bits.
func (f *fields) unsigned(name string, bits int) uint64 {
	var n json.Number
	f.value(name, &n)
	if f.problem != nil {
		return 0
	}
	u, err := strconv.ParseUint(n.String(), 10, bits)
	if err != nil {
		f.fail(name, err)
	}
	return u
}

func (f *fields) list(name string) []json.RawMessage {
	list := []json.RawMessage{}
	f.value(name, &list)
	return list
}

func (f *fields) object(name string) *fields {
	var text json.RawMessage
	f.value(name, &text)
	if f.problem != nil {
		return &fields{}
	}
	o, err := parseObject(text)
	if err != nil {
		f.fail(name, err)
		return &fields{}
	}
	return o
}

func (f *fields) id(name string) id.PromiseID {
	var path []int64
	f.value(name, &path)
	if f.problem != nil {
		return ""
	}
	p, err := promiseID(path)
	if err != nil {
		f.fail(name, err)
	}
	return p
}

func (f *fields) ids(name string) []id.PromiseID {
	var paths [][]int64
	f.value(name, &paths)
	ids := make([]id.PromiseID, 0, len(paths))
	for _, path := range paths {
		p, err := promiseID(path)
		if err != nil {
			f.fail(name, err)
		}
		ids = append(ids, p)
	}
	return ids
}

// promiseID turns [7, 2, 0] into 7:2.0, and [] into "".
func promiseID(path []int64) (id.PromiseID, error) {
	if len(path) == 0 {
		return "", nil
	}
	p := id.PromiseID(strconv.FormatInt(path[0], 10))
	for _, n := range path[1:] {
		if n < 0 || n > 1<<32-1 {
			return "", fmt.Errorf("path element %d is not a uint32", n)
		}
		p = p.Child(uint32(n))
	}
	return p, nil
}
