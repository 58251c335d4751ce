package durable

import (
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
	if err := decode(roman{}, "x", []byte("?"), &n); !errors.As(err, &e) || e.Message != "x as *int: panic: not a numeral" {
		t.Errorf("%v", err)
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
