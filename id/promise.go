// Package id owns the identifiers: the native identifier (a root and a path of child numbers), the origin and
// slot that place any identifier on a partition, and the limits on sizes.
//
// It promises that one identifier has exactly one text, that an identifier and all its descendants share a
// slot, and that neither ever changes meaning: stored texts and slots stay valid. The package stores nothing,
// so a crash loses nothing.
//
// An execution named order-42 calls its n-th operation order-42:n; when that operation is an execution
// itself, its own operations are order-42:n.0, order-42:n.1 and so on. The same code takes the same numbers
// at every replay, so a recorded result finds its caller again.
package id

import (
	"errors"
	"strconv"
	"strings"
)

// PromiseID is the canonical text of a native identifier: the root, then ':' before the first child
// number and '.' before every further one (order-42, order-42:0, order-42:0.3). Numbers are decimal
// uint32 without leading zeros. Two identifiers are the same exactly when their texts are.
//
// The zero value "" names nothing; where a field may have no identifier ("no parent"), it is "".
type PromiseID string

// Parse checks that text is a canonical identifier and returns it. The root must satisfy ValidateRoot;
// the path may be of any length, since it grows with the calls of a program and not with what a user
// types. It allocates only for an *Error.
func Parse(text string) (PromiseID, error) {
	root, path, hasPath := strings.Cut(text, ":")
	if err := ValidateRoot(root); err != nil {
		// The error quotes the whole text, which the caller knows.
		var e *Error
		if errors.As(err, &e) {
			e.ID = text
		}
		return "", err
	}
	for hasPath {
		var number string
		number, path, hasPath = strings.Cut(path, ".")
		if _, ok := parseNumber(number); !ok {
			return "", &Error{Rule: RulePath, ID: text,
				Detail: "has path element " + strconv.Quote(cutShown(number)) + ", not a uint32 without leading zeros"}
		}
	}
	return PromiseID(text), nil
}

func cutShown(s string) string {
	if len(s) > shownBytes {
		return s[:shownBytes]
	}
	return s
}

// parseNumber reads one canonical path element.
func parseNumber(s string) (uint32, bool) {
	if s == "" || len(s) > 10 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	n := uint64(0)
	for i := 0; i < len(s); i++ {
		digit := s[i] - '0'
		if digit > 9 {
			return 0, false
		}
		n = n*10 + uint64(digit)
	}
	return uint32(n), n <= 1<<32-1
}

// String returns the canonical text.
func (p PromiseID) String() string { return string(p) }

// Root returns the part before the first ':', which is the whole text of an identifier without a path.
func (p PromiseID) Root() string { return Origin(string(p)) }

// Child returns the identifier of the n-th operation below p, counted from 0.
func (p PromiseID) Child(n uint32) PromiseID {
	var number [10]byte
	digits := strconv.AppendUint(number[:0], uint64(n), 10)
	if p.joint() == ':' {
		return p + ":" + PromiseID(digits)
	}
	return p + "." + PromiseID(digits)
}

// joint is what separates p from its children's numbers.
func (p PromiseID) joint() byte {
	if strings.IndexByte(string(p), ':') >= 0 {
		return '.'
	}
	return ':'
}

// lastJoint is the index of the separator before the last path element, or -1 for a bare root. A root
// may contain '.', so a '.' counts only behind the ':'.
func (p PromiseID) lastJoint() int {
	colon := strings.IndexByte(string(p), ':')
	if colon < 0 {
		return -1
	}
	if dot := strings.LastIndexByte(string(p[colon:]), '.'); dot >= 0 {
		return colon + dot
	}
	return colon
}

// Parent returns the identifier p is a child of; false for a bare root.
func (p PromiseID) Parent() (PromiseID, bool) {
	joint := p.lastJoint()
	if joint < 0 {
		return "", false
	}
	return p[:joint], true
}

// Last returns the last path element: the position of p below its parent; false for a bare root (and
// for a text that Parse would refuse).
func (p PromiseID) Last() (uint32, bool) {
	joint := p.lastJoint()
	if joint < 0 {
		return 0, false
	}
	return parseNumber(string(p[joint+1:]))
}

// Depth returns the number of path elements: 0 for a bare root.
func (p PromiseID) Depth() int {
	colon := strings.IndexByte(string(p), ':')
	if colon < 0 {
		return 0
	}
	return 1 + strings.Count(string(p[colon:]), ".")
}

// IsChildOf reports whether p is a direct child of parent, and which one. It does not allocate and
// accepts canonical numbers only, so p == parent.Child(n) exactly when it answers (n, true).
func (p PromiseID) IsChildOf(parent PromiseID) (n uint32, ok bool) {
	if len(p) < len(parent)+2 || parent == "" || p[:len(parent)] != parent || p[len(parent)] != parent.joint() {
		return 0, false
	}
	return parseNumber(string(p[len(parent)+1:]))
}
