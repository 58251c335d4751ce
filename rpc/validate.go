package rpc

import (
	"crypto/rand"
	"errors"
	"strings"
	"unicode/utf8"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// Limits of names that are not ids.
const (
	maxNameBytes   = 256
	maxReasonBytes = 4096
	maxTagBytes    = 1024
	maxDigestBytes = 1024
	maxPolicyBytes = 1024
)

// DefaultNamespace replaces an empty namespace.
const DefaultNamespace = "default"

func namespace(ns string) (string, error) {
	if ns == "" {
		return DefaultNamespace, nil
	}
	return ns, name("namespace", ns)
}

// name checks a function's, signal's or namespace's name.
func name(what, s string) error {
	switch {
	case s == "":
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the %s is empty", what)
	case len(s) > maxNameBytes:
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%s of %d bytes exceeds %d", what, len(s), maxNameBytes)
	case !utf8.ValidString(s):
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the %s is not valid UTF-8", what)
	}
	for i := range len(s) {
		if s[i] == 0 {
			return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the %s holds a NUL byte", what)
		}
	}
	return nil
}

// function checks the name of a function that clients start and workers serve. Those that begin with $ are the
// server's own.
func function(s string) error {
	if strings.HasPrefix(s, "$") {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the function %q: names that begin with $ are reserved for the server", short(s)).
			With("function", short(s))
	}
	if strings.HasPrefix(s, "@") {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the function %q: names that begin with @ are those of entities", short(s)).
			With("function", short(s))
	}
	return name("function", s)
}

func short(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// maxPathBytes is how much longer than its root a child's id may be: some ninety levels.
const maxPathBytes = 1024

// anyID checks an id of any form: a root, or a root and the path of a child.
func anyID(s string) error {
	root := id.Origin(s)
	if len(root) > id.MaxIDBytes || len(s) > id.MaxIDBytes+maxPathBytes {
		return api.Errorf(perdurev1.Reason_REASON_ID_TOO_LONG, "id of %d bytes exceeds %d", len(s), id.MaxIDBytes).With("id", short(s))
	}
	if err := id.Validate(root); err != nil {
		return malformedID(s, err)
	}
	if root == s {
		return nil
	}
	if _, err := id.Parse(s); err != nil {
		return malformedID(s, err)
	}
	return nil
}

// malformedID is the refusal of an id, with the rule that it breaks.
func malformedID(s string, err error) error {
	refused := api.Errorf(perdurev1.Reason_REASON_BAD_ID, "%v", err).With("id", short(s))
	var e *id.Error
	if errors.As(err, &e) {
		_ = refused.With("rule", e.Rule)
	}
	return refused
}

// rootID checks an id that a user chooses.
func rootID(s string) error {
	if err := anyID(s); err != nil {
		return err
	}
	if err := id.ValidateRoot(s); err != nil {
		return malformedID(s, err)
	}
	return nil
}

// optional is a check of an id that may be empty.
func optional(check func(string) error, s string) error {
	if s == "" {
		return nil
	}
	return check(s)
}

func payload(what string, b []byte) error {
	if len(b) > id.MaxPayloadBytes {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "%s of %d bytes exceeds %d", what, len(b), id.MaxPayloadBytes)
	}
	return nil
}

// failure checks the size of a failure, which replaces a payload.
func failure(what string, f *perdurev1.Failure) error {
	if len(f.GetType()) > maxNameBytes {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the type of %s of %d bytes exceeds %d", what, len(f.GetType()), maxNameBytes)
	}
	if n := failureBytes(f); n > id.MaxPayloadBytes {
		return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "%s of %d bytes exceeds %d", what, n, id.MaxPayloadBytes)
	}
	return nil
}

func failureBytes(f *perdurev1.Failure) int {
	return len(f.GetType()) + len(f.GetMessage()) + len(f.GetDetails())
}

// text checks the length of a string that is only recorded.
func text(what, s string, most int) error {
	if len(s) > most {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%s of %d bytes exceeds %d", what, len(s), most)
	}
	return nil
}

func tags(m map[string]string) error {
	if len(m) > id.MaxTags {
		return api.Errorf(perdurev1.Reason_REASON_TOO_MANY_TAGS, "%d tags exceed %d", len(m), id.MaxTags)
	}
	for k, v := range m {
		if k == "" || len(k) > maxTagBytes || len(v) > maxTagBytes {
			return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "tag %q has a key beyond 1 to %d bytes or a value beyond %d", short(k), maxTagBytes, maxTagBytes)
		}
	}
	return nil
}

func duration(what string, ms int64) error {
	if ms < 0 {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%s of %d ms is negative", what, ms)
	}
	return nil
}

// request gives every write a request id: the caller's, or one of this node's own, so that its internal
// retries are safe.
func request(r *perdurev1.RequestID) (*perdurev1.RequestID, error) {
	switch n := len(r.GetId()); {
	case n == 16:
		return r, nil
	case n != 0:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "request id of %d bytes, not 16", n)
	}
	minted := make([]byte, 16)
	if _, err := rand.Read(minted); err != nil {
		return nil, err
	}
	return &perdurev1.RequestID{Id: minted}, nil
}

// firstError answers the first of several checks that failed.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
