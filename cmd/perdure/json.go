package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

// printJSON writes one value on a line of its own.
func (a *app) printJSON(v any) error {
	_, err := a.out.Write(append(appendJSON(nil, v), '\n'))
	return err
}

// appendJSON writes the kinds of values that objects here hold.
func appendJSON(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case object:
		dst = append(dst, '{')
		for i, m := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, m.key), ':')
			dst = appendJSON(dst, m.value)
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, item)
		}
		return append(dst, ']')
	case json.RawMessage:
		return append(dst, v...)
	case string:
		return appendString(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	default:
		panic(fmt.Sprintf("perdure: %T has no JSON", v))
	}
}

// appendString writes a string as JSON without HTML's escapes.
func appendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// payloadMember shows opaque bytes: as the JSON they are, as null when there are none, else as base64
// under another name.
func payloadMember(key string, payload []byte) member {
	if len(payload) == 0 {
		return member{key, nil}
	}
	if compact, ok := compactJSON(payload); ok {
		return member{key, json.RawMessage(compact)}
	}
	return member{key + "_base64", base64.StdEncoding.EncodeToString(payload)}
}

// compactJSON is payload without the space between its tokens, if it is JSON.
func compactJSON(payload []byte) ([]byte, bool) {
	var b bytes.Buffer
	if !utf8.Valid(payload) || json.Compact(&b, payload) != nil {
		return nil, false
	}
	return b.Bytes(), true
}

// ofClients are the fields that only what clients of the recovery protocol gave has.
var ofClients = map[protoreflect.FullName]bool{
	"perdure.v1.Outcome.form": true, "perdure.v1.Outcome.headers": true,
	"perdure.v1.Promise.param_form": true, "perdure.v1.Promise.param_headers": true, "perdure.v1.Promise.address": true,
}

// messageObject shows a wire message as the package comment says.
func messageObject(m protoreflect.Message) object {
	out := object{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if (f.HasPresence() || ofClients[f.FullName()]) && !m.Has(f) {
			continue
		}
		out = append(out, fieldMember(f, m.Get(f)))
	}
	return out
}

func fieldMember(f protoreflect.FieldDescriptor, v protoreflect.Value) member {
	key := string(f.Name())
	switch {
	case f.IsList():
		items := make([]any, v.List().Len())
		for i := range items {
			items[i] = scalar(f, v.List().Get(i))
		}
		return member{key, items}
	case f.IsMap():
		var entries object
		v.Map().Range(func(k protoreflect.MapKey, value protoreflect.Value) bool {
			entries = append(entries, member{k.String(), scalar(f.MapValue(), value)})
			return true
		})
		slices.SortFunc(entries, func(a, b member) int { return strings.Compare(a.key, b.key) })
		return member{key, entries}
	case f.Kind() == protoreflect.BytesKind:
		return payloadMember(key, v.Bytes())
	default:
		return member{key, scalar(f, v)}
	}
}

// scalar shows one value of a field that is neither bytes nor repeated itself.
func scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return messageObject(v.Message())
	case protoreflect.EnumKind:
		return enumName(f.Enum(), int32(v.Enum()))
	case protoreflect.StringKind:
		return v.String()
	case protoreflect.BoolKind:
		return v.Bool()
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return v.Uint()
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return v.Int()
	default:
		panic(fmt.Sprintf("perdure: field %s of kind %s has no JSON", f.FullName(), f.Kind()))
	}
}

// enumName is an enum value's name in lower case, without the enum's own name before it: "running". A
// number this binary does not know is shown as it is.
func enumName(d protoreflect.EnumDescriptor, n int32) string {
	value := d.Values().ByNumber(protoreflect.EnumNumber(n))
	if value == nil {
		return strconv.Itoa(int(n))
	}
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), upperSnake(string(d.Name()))+"_"))
}

// upperSnake turns ExecutionStatus into EXECUTION_STATUS.
func upperSnake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}
