package api

import (
	"errors"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	perdurev1 "perdure/api/perdure/v1"
)

// Domain is the domain of every google.rpc.ErrorInfo that Perdure attaches.
const Domain = "perdure"

// Error is a refusal or a failure as every floor reports it: a reason from one enum, a message for
// people, and the ids concerned. It answers the caller's question (is it my fault, shall I try again,
// was it applied?) through Reason; callers do not compare messages.
type Error struct {
	Reason  perdurev1.Reason
	Message string
	// Meta names the ids and the rule: "namespace", "id", "rule", "leader", …
	Meta map[string]string

	// encoded is the status that gRPC sends, once the error is sealed.
	encoded []byte
}

// Errorf makes an Error. Add ids with With.
func Errorf(reason perdurev1.Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// With adds one piece of metadata and returns the error itself, or a copy of one that is sealed.
func (e *Error) With(key, value string) *Error {
	if e.encoded != nil {
		e = &Error{Reason: e.Reason, Message: e.Message, Meta: maps.Clone(e.Meta)}
	}
	if e.Meta == nil {
		e.Meta = map[string]string{}
	}
	e.Meta[key] = value
	return e
}

// Seal encodes the status that gRPC sends, and returns the error itself: one that is returned to many callers is encoded once.
// Nobody may change a sealed error's fields. The caller must not share it before.
func (e *Error) Seal() *Error {
	if encoded, err := (proto.MarshalOptions{Deterministic: true}).Marshal(e.GRPCStatus().Proto()); err == nil {
		e.encoded = encoded
	}
	return e
}

// EncodedStatus is the google.rpc.Status of a sealed error, nil for others. It must not be changed.
func (e *Error) EncodedStatus() []byte { return e.encoded }

// metaRetryAfter is the key under which the metadata says when to try again.
const metaRetryAfter = "retry_after_ms"

// WithRetryAfterMS adds a hint in how many milliseconds the caller should try again, and returns the error itself as With
// does. gRPC clients get it as a google.rpc.RetryInfo, too.
func (e *Error) WithRetryAfterMS(ms int64) *Error {
	return e.With(metaRetryAfter, strconv.FormatInt(ms, 10))
}

// maxRetryAfterMS bounds what RetryAfterMS believes.
const maxRetryAfterMS = 60_000

// RetryAfterMS is in how many milliseconds the caller should try again, at most a minute; 0 when the error says
// nothing of it.
func (e *Error) RetryAfterMS() int64 {
	ms, err := strconv.ParseInt(e.Meta[metaRetryAfter], 10, 64)
	if err != nil || ms < 0 {
		return 0
	}
	return min(ms, maxRetryAfterMS)
}

// Error names the message and the reason.
func (e *Error) Error() string {
	return e.Message + " (" + ReasonName(e.Reason) + ")"
}

// ReasonName is the reason without its enum prefix, as people and ErrorInfo see it.
func ReasonName(r perdurev1.Reason) string {
	return strings.TrimPrefix(r.String(), "REASON_")
}

// Keys lists the metadata's keys in order.
func (e *Error) Keys() []string {
	keys := make([]string, 0, len(e.Meta))
	for k := range e.Meta { //lint:sorted sorted before use
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// NotApplied reports whether a refusal means that nothing was applied and that the same request may succeed later.
func NotApplied(r perdurev1.Reason) bool {
	switch r {
	case perdurev1.Reason_REASON_NOT_LEADER, perdurev1.Reason_REASON_TRY_LATER, perdurev1.Reason_REASON_SHUTTING_DOWN,
		perdurev1.Reason_REASON_OVERLOADED, perdurev1.Reason_REASON_DISK_FULL:
		return true
	}
	return false
}

// Retryable reports whether repeating a request with the same request id is safe and may help: nothing was applied, or
// the outcome is unknown.
func Retryable(r perdurev1.Reason) bool {
	return NotApplied(r) || r == perdurev1.Reason_REASON_OUTCOME_UNKNOWN
}

// Code is the gRPC code that goes with a reason.
func Code(r perdurev1.Reason) codes.Code {
	switch r {
	case perdurev1.Reason_REASON_BAD_ID, perdurev1.Reason_REASON_ID_TOO_LONG,
		perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, perdurev1.Reason_REASON_TOO_MANY_TAGS,
		perdurev1.Reason_REASON_BAD_REQUEST:
		return codes.InvalidArgument
	case perdurev1.Reason_REASON_EXECUTION_NOT_FOUND, perdurev1.Reason_REASON_PROMISE_NOT_FOUND,
		perdurev1.Reason_REASON_FUNCTION_UNKNOWN, perdurev1.Reason_REASON_NODE_NOT_FOUND, perdurev1.Reason_REASON_PARTITION_NOT_FOUND,
		perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND:
		return codes.NotFound
	case perdurev1.Reason_REASON_ID_CONFLICT:
		return codes.AlreadyExists
	case perdurev1.Reason_REASON_STALE_TASK:
		return codes.Aborted
	case perdurev1.Reason_REASON_RULE_BROKEN, perdurev1.Reason_REASON_ALREADY_FINISHED,
		perdurev1.Reason_REASON_NOT_SETTLEABLE, perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, perdurev1.Reason_REASON_FEATURE_LEVEL:
		return codes.FailedPrecondition
	case perdurev1.Reason_REASON_NOT_LEADER, perdurev1.Reason_REASON_TRY_LATER,
		perdurev1.Reason_REASON_SHUTTING_DOWN:
		return codes.Unavailable
	case perdurev1.Reason_REASON_OVERLOADED, perdurev1.Reason_REASON_DISK_FULL, perdurev1.Reason_REASON_QUOTA_EXCEEDED:
		return codes.ResourceExhausted
	case perdurev1.Reason_REASON_UNAUTHENTICATED:
		return codes.Unauthenticated
	case perdurev1.Reason_REASON_PERMISSION_DENIED:
		return codes.PermissionDenied
	case perdurev1.Reason_REASON_CORRUPT:
		return codes.DataLoss
	default:
		return codes.Unknown
	}
}

// CodeOf is the gRPC code of an error, as status.Code finds it, without encoding an Error's details.
func CodeOf(err error) codes.Code {
	if e, ok := err.(*Error); ok && e != nil { //nolint:errorlint // only what status.Code would find at once
		return Code(e.Reason)
	}
	return status.Code(err)
}

// GRPCStatus lets gRPC send the error with its code and an ErrorInfo.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(Code(e.Reason), e.Message)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: ReasonName(e.Reason), Domain: Domain, Metadata: e.Meta}}
	if ms := e.RetryAfterMS(); ms > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: ms / 1000, Nanos: int32(ms % 1000 * 1_000_000)}})
	}
	with, err := st.WithDetails(details...)
	if err != nil {
		return st
	}
	return with
}

// FromStatus reads an Error back from what gRPC returned; ok is false when err carries no ErrorInfo of
// this domain (a broken connection, a deadline, another server).
func FromStatus(err error) (e *Error, ok bool) {
	if err == nil {
		return nil, false
	}
	if errors.As(err, &e) {
		return e, true
	}
	st, isStatus := status.FromError(err)
	if !isStatus {
		return nil, false
	}
	for _, d := range st.Details() {
		if info, isInfo := d.(*errdetails.ErrorInfo); isInfo && info.Domain == Domain {
			return &Error{
				Reason:  perdurev1.Reason(perdurev1.Reason_value["REASON_"+info.Reason]),
				Message: st.Message(),
				Meta:    info.Metadata,
			}, true
		}
	}
	return nil, false
}

// Is reports whether err is, or wraps, an Error with this reason.
func Is(err error, reason perdurev1.Reason) bool {
	e, ok := FromStatus(err)
	return ok && e.Reason == reason
}
