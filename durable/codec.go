package durable

import (
	"bytes"
	"encoding/json"
	"fmt"

	"perdure/id"
)

// Codec converts values into payloads and back. It must be deterministic enough that a value it encoded
// years ago still decodes, and safe for concurrent use. Values of type []byte and json.RawMessage do not
// pass through it; an empty payload decodes to the zero value without it.
type Codec interface {
	Encode(v any) ([]byte, error)
	// Decode reads data into the pointer v.
	Decode(data []byte, v any) error
}

// JSON is the default codec: encoding/json.
type JSON struct{}

// Encode is json.Marshal.
func (JSON) Encode(v any) ([]byte, error) { return json.Marshal(v) }

// Decode is json.Unmarshal.
func (JSON) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// encode makes a payload of v; its error is an *Error, final.
func encode(c Codec, what string, v any) ([]byte, error) {
	var data []byte
	switch v := v.(type) {
	case []byte:
		data = v
	case json.RawMessage:
		data = v
	default:
		var err error
		if data, err = safely(func() ([]byte, error) { return c.Encode(v) }); err != nil {
			return nil, &Error{Type: TypeEncoding, Message: fmt.Sprintf("%s of type %T: %v", what, v, err), NonRetryable: true}
		}
	}
	if len(data) > id.MaxPayloadBytes {
		return nil, &Error{Type: TypeTooLarge, NonRetryable: true,
			Message: fmt.Sprintf("%s has %d bytes, the limit is %d", what, len(data), id.MaxPayloadBytes)}
	}
	return data, nil
}

// decode reads a payload into the pointer v; its error is an *Error, final.
func decode(c Codec, what string, data []byte, v any) error {
	switch v := v.(type) {
	case *[]byte:
		*v = bytes.Clone(data)
		return nil
	case *json.RawMessage:
		*v = bytes.Clone(data)
		return nil
	}
	if len(data) == 0 {
		return nil
	}
	_, err := safely(func() ([]byte, error) { return nil, c.Decode(data, v) })
	if err != nil {
		return &Error{Type: TypeEncoding, Message: fmt.Sprintf("%s as %T: %v", what, v, err), NonRetryable: true}
	}
	return nil
}

// safely turns a panic of a codec into an error, so that it does not look like a panic of the function.
func safely(f func() ([]byte, error)) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}
