package durable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// Codec converts values into payloads and back. It must be deterministic enough that a value it encoded years
// ago still decodes, and safe for concurrent use. Every payload passes through it: inputs, results, signals,
// entity states, values of type []byte and json.RawMessage, and the messages and details of failures, as
// []byte. So an encrypting codec leaves only ids, names, tags, types of failures and reasons of cancels in
// clear. An empty payload decodes to the zero value without it.
type Codec interface {
	Encode(v any) ([]byte, error)
	// Decode reads data into the pointer v.
	Decode(data []byte, v any) error
}

// JSON is the default codec: encoding/json. It leaves []byte and json.RawMessage as they are, and failures readable.
type JSON struct{}

// Encode is json.Marshal.
func (JSON) Encode(v any) ([]byte, error) { return json.Marshal(v) }

// Decode is json.Unmarshal.
func (JSON) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// plain reports whether a codec leaves payloads readable.
func plain(c Codec) bool {
	_, ok := c.(JSON)
	return ok || c == nil
}

// rawBytes returns a value that is its own payload.
func rawBytes(c Codec, v any) (data []byte, ok bool) {
	if !plain(c) {
		return nil, false
	}
	switch v := v.(type) {
	case []byte:
		return v, true
	case json.RawMessage:
		return v, true
	}
	return nil, false
}

// sealedPrefix begins the details of a failure whose message and details have passed a codec.
const sealedPrefix = "perdure-sealed-1\x00"

// sealed holds the parts of a failure that pass through a codec, as JSON.
type sealed struct {
	Message string `json:"message"`
	Details []byte `json:"details,omitempty"`
}

// failureBy is failureOf with its message and details passed through a codec. The name of the signal in a
// node's SuspendOn stays, because the cluster needs it.
func failureBy(c Codec, err error) *perdurev1.Failure {
	f := failureOf(err)
	if plain(c) || f.GetType() == TypeSuspended {
		return f
	}
	content, jsonErr := json.Marshal(sealed{f.GetMessage(), f.GetDetails()})
	f.Message, f.Details = "", nil
	data, encodeErr := safely(func() ([]byte, error) { return c.Encode(content) })
	switch {
	case jsonErr != nil || encodeErr != nil:
		f.Message = "the codec cannot encode the failure"
	case len(sealedPrefix)+len(data) > maxDetailsBytes:
		f.Message = "the failure is too large when it is encoded"
	default:
		f.Details = append([]byte(sealedPrefix), data...)
	}
	return f
}

// errorBy is errorOf of a failure whose message and details may have passed a codec.
func errorBy(c Codec, f *perdurev1.Failure) *Error {
	e := errorOf(f)
	s, err := unseal(e.Details, func(data []byte) (content []byte, err error) {
		return content, decode(c, "the failure", "", data, &content)
	})
	switch {
	case err != nil:
		e.Message = "a failure that this codec cannot read"
	case s != nil:
		e.Message, e.Details = s.Message, s.Details
	}
	return e
}

// UnsealFailure sets the message and details of a failure to those that a codec has encoded. A failure that
// no codec has encoded, or that decode refuses, stays as it is.
//
// decode is a codec without types: it returns the content of the failure, or, because a codec may marshal a
// []byte first, that as JSON.
func UnsealFailure(f *perdurev1.Failure, decode func(data []byte) ([]byte, error)) error {
	s, err := unseal(f.GetDetails(), decode)
	if s != nil {
		f.Message, f.Details = s.Message, s.Details
	}
	return err
}

// unseal returns what a codec has encoded into the details of a failure; nil if that is nothing.
func unseal(details []byte, decode func(data []byte) ([]byte, error)) (*sealed, error) {
	data, ok := bytes.CutPrefix(details, []byte(sealedPrefix))
	if !ok {
		return nil, nil
	}
	content, err := decode(data)
	if err != nil {
		return nil, err
	}
	var marshalled []byte
	if json.Unmarshal(content, &marshalled) == nil {
		content = marshalled
	}
	s := new(sealed)
	if err := json.Unmarshal(content, s); err != nil {
		return nil, fmt.Errorf("not the content of a failure: %w", err)
	}
	return s, nil
}

// publicText is the text of an error for the cluster, which shows it as a problem. If the codec hides payloads, errors
// with data of the function stay in the worker's log.
func publicText(c Codec, err error) string {
	var mismatch *MismatchError
	var misuse *MisuseError
	var refused *api.Error
	if plain(c) || errors.As(err, &mismatch) || errors.As(err, &misuse) || errors.As(err, &refused) {
		return err.Error()
	}
	return "a problem that the worker's log shows"
}

// subject describes a payload in an error: what it is, and the name of that, if it has one.
func subject(what, name string) string {
	if name != "" {
		what += " " + strconv.Quote(name)
	}
	return what
}

// encode makes a payload of v; its error is an *Error, final. what and name are the subject.
func encode(c Codec, what, name string, v any) ([]byte, error) {
	data, raw := rawBytes(c, v)
	if !raw {
		var err error
		if data, err = safely(func() ([]byte, error) { return c.Encode(v) }); err != nil {
			return nil, &Error{Type: TypeEncoding, Message: fmt.Sprintf("%s of type %T: %v", subject(what, name), v, err), NonRetryable: true}
		}
	}
	if len(data) > id.MaxPayloadBytes {
		return nil, &Error{Type: TypeTooLarge, NonRetryable: true,
			Message: fmt.Sprintf("%s has %d bytes, the limit is %d", subject(what, name), len(data), id.MaxPayloadBytes)}
	}
	return data, nil
}

// decode reads a payload into the pointer v; its error is an *Error, final. what and name are the subject.
func decode(c Codec, what, name string, data []byte, v any) error {
	if plain(c) {
		switch v := v.(type) {
		case *[]byte:
			*v = bytes.Clone(data)
			return nil
		case *json.RawMessage:
			*v = bytes.Clone(data)
			return nil
		}
	}
	if len(data) == 0 {
		return nil
	}
	_, err := safely(func() ([]byte, error) { return nil, c.Decode(data, v) })
	if err != nil {
		return &Error{Type: TypeEncoding, Message: fmt.Sprintf("%s as %T: %v", subject(what, name), v, err), NonRetryable: true}
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
