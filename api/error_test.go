package api_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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

// A sealed error is sent as it was before it was sealed, and stays as it is.
func TestSeal(t *testing.T) {
	err := api.Errorf(perdurev1.Reason_REASON_QUOTA_EXCEEDED, "x").With("id", "e").WithRetryAfterMS(5)
	want := status.Convert(err)
	if err.EncodedStatus() != nil {
		t.Error("encoded before it is sealed")
	}
	sealed := err.Seal()
	encoded := &spb.Status{}
	if failed := proto.Unmarshal(sealed.EncodedStatus(), encoded); failed != nil {
		t.Fatal(failed)
	}
	got := status.FromProto(encoded)
	// The details are maps in bytes, in any order.
	same := slices.EqualFunc(got.Details(), want.Details(), func(a, b any) bool { return proto.Equal(a.(proto.Message), b.(proto.Message)) })
	if got.Code() != want.Code() || got.Message() != want.Message() || len(want.Details()) != 2 || !same {
		t.Errorf("encoded as %v, want %v", encoded, want.Proto())
	}
	with := sealed.With("namespace", "n")
	if with == sealed || len(sealed.Meta) != 2 || len(with.Meta) != 3 || with.EncodedStatus() != nil {
		t.Errorf("%v with more is %v, encoded %x", sealed.Meta, with.Meta, with.EncodedStatus())
	}
}
