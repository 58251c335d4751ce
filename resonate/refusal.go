package resonate

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// The statuses of refusals that package http does not have in the protocol's words.
const (
	statusOK       = http.StatusOK
	statusRedirect = http.StatusMultipleChoices
)

// Refusal is an answer other than 200 and 300: a status of the protocol and a sentence for people.
type Refusal struct {
	Status  int
	Message string
}

// Error is the sentence.
func (r *Refusal) Error() string { return r.Message }

func refuse(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Message: fmt.Sprintf(format, args...)}
}

func bad(format string, args ...any) *Refusal {
	return refuse(http.StatusBadRequest, format, args...)
}

// refusalOf turns a Store's error into an answer. An error that says nothing of its kind becomes 503: the caller must
// assume that the operation may have been applied.
func refusalOf(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	e, ours := api.FromStatus(err)
	if !ours {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return refuse(http.StatusServiceUnavailable, "the partition did not answer in time")
		}
		return refuse(http.StatusServiceUnavailable, "%s", err.Error())
	}
	return refuse(statusOf(e.Reason), "%s", e.Message)
}

// statusOf is the protocol's status for a reason.
func statusOf(reason perdurev1.Reason) int {
	switch reason {
	case perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE:
		return http.StatusRequestEntityTooLarge
	case perdurev1.Reason_REASON_QUOTA_EXCEEDED:
		return http.StatusTooManyRequests
	case perdurev1.Reason_REASON_FEATURE_LEVEL:
		return http.StatusNotImplemented
	}
	switch api.Code(reason) {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.FailedPrecondition:
		return http.StatusUnprocessableEntity
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}
