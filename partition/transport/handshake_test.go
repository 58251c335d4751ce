package transport

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestHelloRoundTrip(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, h := range []hello{
		{kind: KindGroup, group: 1<<32 - 1, cluster: "c", server: "s", address: "1.2.3.4:5"},
		{kind: KindGroup, cluster: long, server: long, address: long},
		{kind: KindService, cluster: "c", server: "s", service: long, target: "t"},
		{kind: KindProbe, cluster: "c", server: "s"},
	} {
		b, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(append(b, "more"...))
		got, err := readHello(iotest.OneByteReader(r))
		if err != nil || got != h {
			t.Errorf("%+v came back as %+v, %v", h, got, err)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "more" {
			t.Errorf("reading went past the message, %q is left", rest)
		}
		for n := range b {
			if _, err := readHello(bytes.NewReader(b[:n])); err == nil {
				t.Fatalf("cut to %d of %d bytes, accepted", n, len(b))
			}
		}
	}
	if _, err := (&hello{kind: KindGroup, cluster: long + "y"}).encode(); err == nil {
		t.Error("256 bytes were encoded")
	}
}

func TestHelloRefusals(t *testing.T) {
	good, err := (&hello{kind: KindGroup, group: 1, cluster: "c", server: "s"}).encode()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		code Code
	}{
		"http":            {[]byte("GET / HTTP/1.1\r\n\r\n"), CodeBadHandshake},
		"another version": {edit(4, 2), CodeUnknownVersion},
		"too long":        {edit(5, 0xFF), CodeBadHandshake},
		"unknown kind":    {edit(helloHead, 9), CodeBadHandshake},
		"kind 0":          {edit(helloHead, 0), CodeBadHandshake},
		"group in probe":  {edit(helloHead, byte(KindProbe)), CodeBadHandshake},
		"short name":      {edit(helloHead+5, 200), CodeBadHandshake},
		"trailing":        {append(edit(6, good[6]+1), 0), CodeBadHandshake},
	} {
		var no *refusal
		if _, err := readHello(bytes.NewReader(c.b)); !errors.As(err, &no) || no.code != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}

func TestAnswer(t *testing.T) {
	for _, text := range []string{"", "n1", strings.Repeat("z", 400)} {
		code, got, err := readAnswer(bytes.NewReader(encodeAnswer(CodeBusy, text)))
		if err != nil || code != CodeBusy || got != text[:min(len(text), maxText)] {
			t.Errorf("%v %q %v", code, got, err)
		}
	}
	for _, b := range [][]byte{nil, {1}, {1, 5, 'a'}} {
		if _, _, err := readAnswer(bytes.NewReader(b)); err == nil {
			t.Errorf("%v accepted", b)
		}
	}
}

func FuzzHello(f *testing.F) {
	for _, h := range []hello{{kind: KindGroup, group: 7, cluster: "c", server: "s", address: "a"},
		{kind: KindService, cluster: "c", server: "s", service: "ship"}} {
		b, _ := h.encode()
		f.Add(b)
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, err := readHello(r)
		if used := len(b) - r.Len(); used > helloHead+maxHelloBody {
			t.Fatalf("%d bytes were read", used)
		}
		if err != nil {
			return
		}
		again, err := h.encode()
		if err != nil || !bytes.Equal(again, b[:len(b)-r.Len()]) {
			t.Fatalf("%x is accepted, but written as %x, %v", b, again, err)
		}
	})
}
