package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The dialer sends, integers big endian:
//
//	magic "PRDU" | version 1 | length 2 | body
//	body: kind 1 | group 4 | cluster | server | address | service | target
//
// where each of the last five is a length of 1 byte and that many bytes. group is 0 unless kind is a group,
// service empty unless kind is a service, target the intended server, empty for any. The answer is
//
//	code 1 | length 1 | text
//
// with the answering server's id as text when code is 0, the reason of the refusal otherwise. The dialer
// sends nothing else before the answer has arrived. Numbers never change.
const (
	helloMagic   = "PRDU"
	helloVersion = 1
	helloHead    = 4 + 1 + 2
	maxHelloBody = 1 + 4 + 5*(1+255)
	maxText      = 255
)

// Kind says what a connection is for.
type Kind uint8

const (
	KindGroup   Kind = 1 // RPCs of one Raft group
	KindService Kind = 2 // a named service
	KindProbe   Kind = 3 // nothing: asks whether the node is there, then closes
)

// Code is the answer to a handshake.
type Code uint8

const (
	CodeOK             Code = 0
	CodeBadHandshake   Code = 1 // not this protocol, or malformed
	CodeUnknownVersion Code = 2 // a handshake version this node does not know
	CodeForeignCluster Code = 3 // another cluster
	CodeUnknownGroup   Code = 4 // the group is not open here (not yet, or not any more): try later
	CodeUnknownService Code = 5 // no such service here
	CodeBusy           Code = 6 // too many connections, or no Accept in time: try later
	CodeAnotherServer  Code = 7 // the server that is meant is not here (any more)
	CodeRemoved        Code = 8 // the dialling server is no member any more
)

var codeNames = map[Code]string{
	CodeOK:             "ok",
	CodeBadHandshake:   "bad handshake",
	CodeUnknownVersion: "unknown handshake version",
	CodeForeignCluster: "foreign cluster",
	CodeUnknownGroup:   "unknown group",
	CodeUnknownService: "unknown service",
	CodeBusy:           "busy",
	CodeAnotherServer:  "another server",
	CodeRemoved:        "no member any more",
}

func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// RefusedError is what a dialer gets when the other side refused.
type RefusedError struct {
	Addr string // who refused
	Code Code
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("transport: %s refused the connection: %s: %s", e.Addr, e.Code, e.Text)
}

// hello is the dialer's first message.
type hello struct {
	kind    Kind
	group   uint32
	cluster string
	server  string
	address string
	service string
	target  string
}

// refusal is a reason to answer no.
type refusal struct {
	code Code
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.code, r.text) }

func refuse(code Code, format string, args ...any) *refusal {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// encode returns the bytes of h. Every string must have at most 255 bytes.
func (h *hello) encode() ([]byte, error) {
	b := make([]byte, helloHead, helloHead+maxHelloBody)
	copy(b, helloMagic)
	b[4] = helloVersion
	b = append(b, byte(h.kind))
	b = binary.BigEndian.AppendUint32(b, h.group)
	for _, s := range []string{h.cluster, h.server, h.address, h.service, h.target} {
		if len(s) > 255 {
			return nil, fmt.Errorf("transport: name of %d bytes, at most 255 fit (it begins %.20q)", len(s), s)
		}
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	binary.BigEndian.PutUint16(b[5:], uint16(len(b)-helloHead))
	return b, nil
}

// readHello reads one hello. It reads at most helloHead+maxHelloBody bytes and nothing beyond the
// message. A *refusal says what to answer; any other error is the connection's.
func readHello(r io.Reader) (hello, error) {
	var head [helloHead]byte
	// The magic first: a peer that speaks something else may never send as much as a whole head.
	if _, err := io.ReadFull(r, head[:4]); err != nil {
		return hello{}, err
	}
	if string(head[:4]) != helloMagic {
		return hello{}, refuse(CodeBadHandshake, "the handshake is not of this protocol")
	}
	if _, err := io.ReadFull(r, head[4:]); err != nil {
		return hello{}, err
	}
	n := int(binary.BigEndian.Uint16(head[5:]))
	if head[4] != helloVersion {
		return hello{}, refuse(CodeUnknownVersion, "version %d, this node knows %d", head[4], helloVersion)
	}
	if n > maxHelloBody {
		return hello{}, refuse(CodeBadHandshake, "handshake of %d bytes", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return hello{}, err
	}
	h, err := decodeHello(body)
	if err != nil {
		return hello{}, refuse(CodeBadHandshake, "%v", err)
	}
	return h, nil
}

// decodeHello reads a body that encode wrote, and refuses every other byte string.
func decodeHello(b []byte) (hello, error) {
	if len(b) < 1+4 {
		return hello{}, errors.New("handshake ends early")
	}
	h := hello{kind: Kind(b[0]), group: binary.BigEndian.Uint32(b[1:])}
	b = b[5:]
	for _, s := range []*string{&h.cluster, &h.server, &h.address, &h.service, &h.target} {
		if len(b) < 1 || len(b) < 1+int(b[0]) {
			return hello{}, errors.New("handshake ends early")
		}
		*s, b = string(b[1:1+int(b[0])]), b[1+int(b[0]):]
	}
	switch {
	case len(b) != 0:
		return hello{}, fmt.Errorf("%d bytes after the handshake", len(b))
	case h.kind != KindGroup && h.group != 0:
		return hello{}, errors.New("a group number on a connection that is for none")
	case (h.kind == KindService) != (h.service != ""):
		return hello{}, errors.New("service name and kind do not agree")
	case h.kind < KindGroup || h.kind > KindProbe:
		return hello{}, fmt.Errorf("unknown kind %d", h.kind)
	}
	return h, nil
}

func encodeAnswer(code Code, text string) []byte {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return append([]byte{byte(code), byte(len(text))}, text...)
}

func readAnswer(r io.Reader) (Code, string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, "", err
	}
	text := make([]byte, head[1])
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, "", err
	}
	return Code(head[0]), string(text), nil
}
