package api_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// The code of an error is the one that gRPC sends.
func TestCodeOf(t *testing.T) {
	errs := []error{nil, context.Canceled, status.Error(codes.Internal, "x")}
	for number := range perdurev1.Reason_name {
		err := api.Errorf(perdurev1.Reason(number), "x").With("id", "e")
		errs = append(errs, err, fmt.Errorf("wrapped: %w", err))
	}
	for _, err := range errs {
		if got, want := api.CodeOf(err), status.Code(err); got != want {
			t.Errorf("%v is %v, want %v", err, got, want)
		}
	}
}
