package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"perdure/client"
)

// roman is a codec of numbers and nothing else.
type roman struct{}

func (roman) Encode(v any) ([]byte, error) {
	n, ok := v.(int)
	if !ok {
		return nil, fmt.Errorf("no numeral for %T", v)
	}
	return []byte("n" + strconv.Itoa(n)), nil
}

func (roman) Decode(data []byte, v any) error {
	if data[0] != 'n' {
		panic("not a numeral")
	}
	n, err := strconv.Atoi(string(data[1:]))
	*v.(*int) = n
	return err
}

func TestCodec(t *testing.T) {
	f := newFake(t)
	half := NewFunction("half", func(ctx Context, n int) (int, error) {
		return Run(ctx, "s", func(context.Context) (int, error) { return n / 2, nil })
	}, WithCodec(roman{}))
	raw := NewFunction("raw", func(ctx Context, in []byte) (json.RawMessage, error) {
		n, err := Call(ctx, half, 8)
		return json.RawMessage(fmt.Sprintf(`{"half":%d,"in":%q}`, n, in)), err
	})
	f.worker(WorkerOptions{}, half, raw)
	h, err := raw.Start(t.Context(), f.client(client.Options{}), "x", []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.Result(t.Context())
	if err != nil || string(out) != `{"half":4,"in":"plain"}` {
		t.Errorf("%s, %v", out, err)
	}
	if got := f.execs["x:0"].entries[0].GetEvent().GetExecutionStarted().GetInput(); string(got) != "n8" {
		t.Errorf("input %s", got)
	}
	var e *Error
	if _, err := NewFunction("f", func(Context, string) (int, error) { return 0, nil }, WithCodec(roman{})).
		Start(t.Context(), nil, "y", "text"); !errors.As(err, &e) || e.Type != TypeEncoding {
		t.Errorf("%v", err)
	}
	var n int
	if err := decode(roman{}, "x", "", []byte("?"), &n); !errors.As(err, &e) || e.Message != "x as *int: panic: not a numeral" {
		t.Errorf("%v", err)
	}
}

// Raw bytes are their own payload for a codec that leaves payloads readable, and pass every other one.
func TestCodecOfRawBytes(t *testing.T) {
	mark := flipped{
		flip:   func(data []byte) ([]byte, error) { return append([]byte("sealed "), data...), nil },
		encode: func(v any) ([]byte, error) { return v.([]byte), nil },
	}
	for _, c := range []struct {
		codec Codec
		want  string
	}{{JSON{}, "raw"}, {nil, "raw"}, {mark, "sealed raw"}} {
		if data, err := encode(c.codec, "x", "", []byte("raw")); err != nil || string(data) != c.want {
			t.Errorf("%T: %q, %v, want %q", c.codec, data, err, c.want)
		}
	}
}

func TestFailureOf(t *testing.T) {
	mine := &Error{Type: "mine", Message: "m", Details: []byte("d")}
	for _, c := range []struct {
		err  error
		want Error
	}{
		{errors.New("plain"), Error{Type: TypeError, Message: "plain"}},
		{mine, Error{Type: "mine", Message: "m", Details: []byte("d")}},
		{fmt.Errorf("wrapped: %w", mine), Error{Type: "mine", Message: "wrapped: mine: m", Details: []byte("d")}},
		{Permanent(mine), Error{Type: "mine", Message: "m", Details: []byte("d"), NonRetryable: true}},
		{fmt.Errorf("w: %w", Permanent(errors.New("p"))), Error{Type: TypeError, Message: "w: p", NonRetryable: true}},
		{&Error{Message: "no type"}, Error{Type: TypeError, Message: "no type"}},
		{context.DeadlineExceeded, Error{Type: TypeTimeout, Message: "context deadline exceeded"}},
		{ErrCancelled, Error{Type: TypeCancelled, Message: "durable: cancelled"}},
		{ErrTimeout, Error{Type: TypeTimeout, Message: "durable: timed out"}},
	} {
		got := errorOf(failureOf(c.err))
		if fmt.Sprintf("%#v", *got) != fmt.Sprintf("%#v", c.want) {
			t.Errorf("%v: got %#v, want %#v", c.err, *got, c.want)
		}
	}
	if Permanent(nil) != nil {
		t.Error("Permanent(nil)")
	}
	if n := len(failureOf(&Error{Message: string(make([]byte, 1<<20))}).GetMessage()); n > maxMessageBytes+8 {
		t.Errorf("a message of %d bytes", n)
	}
	for text, e := range map[string]*Error{"m": {Type: TypeError, Message: "m"}, "t": {Type: "t"}, "t: m": {Type: "t", Message: "m"}} {
		if e.Error() != text {
			t.Errorf("%q is shown as %q", text, e.Error())
		}
	}
}

// The command line opens failures that any codec has encoded, whether it marshals bytes or leaves them.
func TestUnsealFailure(t *testing.T) {
	flip := func(data []byte) ([]byte, error) {
		out := bytes.Clone(data)
		for i := range out {
			out[i] ^= 0x55
		}
		return out, nil
	}
	for name, c := range map[string]Codec{"marshals": flipped{flip, json.Marshal}, "leaves": flipped{flip, func(v any) ([]byte, error) { return v.([]byte), nil }}} {
		f := failureBy(c, &Error{Type: "mine", Message: "secret", Details: []byte("more")})
		if f.GetMessage() != "" || bytes.Contains(f.GetDetails(), []byte("secret")) {
			t.Fatalf("%s: in clear: %v", name, f)
		}
		refused := errors.New("no key")
		if err := UnsealFailure(f, func([]byte) ([]byte, error) { return nil, refused }); !errors.Is(err, refused) || f.GetMessage() != "" {
			t.Errorf("%s: %v, %v", name, f, err)
		}
		if err := UnsealFailure(f, func([]byte) ([]byte, error) { return []byte("17"), nil }); err == nil || f.GetMessage() != "" {
			t.Errorf("%s: %v, %v", name, f, err)
		}
		for range 2 { // the second time it is in clear
			if err := UnsealFailure(f, flip); err != nil || f.GetType() != "mine" || f.GetMessage() != "secret" || string(f.GetDetails()) != "more" {
				t.Errorf("%s: %v, %v", name, f, err)
			}
		}
	}
}

// flipped is a codec that flips bits of what encode makes.
type flipped struct {
	flip   func([]byte) ([]byte, error)
	encode func(any) ([]byte, error)
}

func (f flipped) Encode(v any) ([]byte, error) {
	data, err := f.encode(v)
	if err != nil {
		return nil, err
	}
	return f.flip(data)
}

func (f flipped) Decode(data []byte, v any) error {
	data, err := f.flip(data)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}
