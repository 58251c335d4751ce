package id

import (
	"strconv"
	"strings"
)

// Validate checks what holds for every identifier, native or foreign: 1 to MaxIDBytes bytes, none of
// them NUL (keys use NUL to end a name). Any other byte is allowed; identifiers are compared as bytes.
// The error is an *Error.
func Validate(s string) error {
	switch {
	case s == "":
		return &Error{Rule: RuleEmpty, ID: s, Detail: "is empty"}
	case len(s) > MaxIDBytes:
		return &Error{Rule: RuleTooLong, ID: s, Detail: "has " + strconv.Itoa(len(s)) + " bytes, more than " + strconv.Itoa(MaxIDBytes)}
	}
	if at := strings.IndexByte(s, 0); at >= 0 {
		return &Error{Rule: RuleNUL, ID: s, Detail: "contains NUL at byte " + strconv.Itoa(at)}
	}
	return nil
}

// ValidateRoot checks that s can be the root of a native identifier: Validate, and no ':' in it. The
// error is an *Error.
func ValidateRoot(s string) error {
	if err := Validate(s); err != nil {
		return err
	}
	if at := strings.IndexByte(s, ':'); at >= 0 {
		return &Error{Rule: RuleColon, ID: s, Detail: "contains ':' at byte " + strconv.Itoa(at) + ", which separates a root from its path"}
	}
	return nil
}
