package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

var moved = &perdurev1.TransferLeadershipResponse{Transferred: []*perdurev1.TransferredLeadership{{Partition: 2, Leader: "n3"}}}

// The calls of operators say what they were asked to, and are repeated at the next node.
func TestCluster(t *testing.T) {
	c := newCluster(t, "a", "b")
	cl := c.client(Options{Clock: &fakeClock{}})
	var last any
	answers := func(resp any, errs ...error) {
		c.asked = nil
		c.answer = func(ctx context.Context, n int, req any) (any, error) {
			last = req
			return script(resp, errs...)(ctx, n, req)
		}
	}
	again := []error{refusal(perdurev1.Reason_REASON_NOT_LEADER), refusal(perdurev1.Reason_REASON_SHUTTING_DOWN), status.Error(codes.Unavailable, "broken")}

	answers(&perdurev1.ClusterStatus{ClusterId: "c"}, again...)
	if s, err := cl.ClusterStatus(t.Context()); err != nil || s.GetClusterId() != "c" || strings.Join(c.asked, "") != "abab" {
		t.Errorf("status: %v, %v, asked %v", s, err, c.asked)
	}
	answers(moved, again...)
	ask := &perdurev1.TransferLeadershipRequest{Partition: proto.Uint32(2), ToNode: "n3"}
	if got, err := cl.TransferLeadership(t.Context(), ask); err != nil || len(got) != 1 || got[0].GetLeader() != "n3" ||
		!proto.Equal(last.(proto.Message), ask) || len(c.asked) != 4 {
		t.Errorf("transfer: %v, %v, asked %v for %v", got, err, c.asked, last)
	}
	answers(&perdurev1.RebuildReplicaResponse{Applied: 9, DoneMsAgo: 1500}, again...)
	if got, err := cl.RebuildReplica(t.Context(), "n3", 2); err != nil || got != (Rebuilt{9, 1500 * time.Millisecond}) || len(c.asked) != 4 ||
		!proto.Equal(last.(proto.Message), &perdurev1.RebuildReplicaRequest{Partition: 2, NodeId: "n3"}) {
		t.Errorf("rebuild: %v, %v, asked %v for %v", got, err, c.asked, last)
	}

	answers(&perdurev1.UpgradeResponse{From: 4, Level: 5}, again...)
	if got, err := cl.Upgrade(t.Context(), 5); err != nil || got.GetFrom() != 4 || got.GetLevel() != 5 || len(c.asked) != 4 ||
		!proto.Equal(last.(proto.Message), &perdurev1.UpgradeRequest{Level: 5}) {
		t.Errorf("upgrade: %v, %v, asked %v for %v", got, err, c.asked, last)
	}

	answers(&perdurev1.ForgetQuarantinedResponse{Forgotten: []*perdurev1.QuarantinedReplica{{Name: "kept-0002-x"}}}, again...)
	if got, err := cl.ForgetQuarantined(t.Context(), "n3", 2, "kept-0002-x"); err != nil || len(got) != 1 || len(c.asked) != 4 ||
		!proto.Equal(last.(proto.Message), &perdurev1.ForgetQuarantinedRequest{Partition: 2, NodeId: "n3", Name: "kept-0002-x"}) {
		t.Errorf("forget: %v, %v, asked %v for %v", got, err, c.asked, last)
	}

	answers(nil, api.Errorf(perdurev1.Reason_REASON_NODE_NOT_FOUND, "there is no node n9"))
	if _, err := cl.RebuildReplica(t.Context(), "n9", 2); !api.Is(err, perdurev1.Reason_REASON_NODE_NOT_FOUND) || len(c.asked) != 1 {
		t.Errorf("a refusal: %v, asked %v", err, c.asked)
	}
	answers(nil, status.Error(codes.Unimplemented, "old server"))
	if _, err := cl.ClusterStatus(t.Context()); status.Code(err) != codes.Unimplemented {
		t.Errorf("an old server: %v", err)
	}
}

// A rebuild is given the time that its caller has, not that of a short question.
func TestClusterTimeouts(t *testing.T) {
	c := newCluster(t, "a")
	left := make(chan time.Duration, 1)
	c.answer = func(ctx context.Context, _ int, req any) (any, error) {
		end, _ := ctx.Deadline()
		left <- time.Until(end)
		if _, ok := req.(*perdurev1.TransferLeadershipRequest); ok {
			return moved, nil
		}
		return &perdurev1.RebuildReplicaResponse{}, nil
	}
	cl := c.client(Options{})
	within := func(what string, least, most time.Duration) {
		t.Helper()
		if got := <-left; got < least || got > most {
			t.Errorf("%s may take %v, want %v to %v", what, got, least, most)
		}
	}
	if _, err := cl.RebuildReplica(t.Context(), "n1", 0); err != nil {
		t.Fatal(err)
	}
	within("a rebuild", time.Hour-time.Minute, time.Hour+time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, err := cl.RebuildReplica(ctx, "n1", 0); err != nil {
		t.Fatal(err)
	}
	within("a rebuild with a deadline", 9*time.Minute, 10*time.Minute)
	if _, err := cl.TransferLeadership(t.Context(), &perdurev1.TransferLeadershipRequest{FromNode: "n1"}); err != nil {
		t.Fatal(err)
	}
	within("a transfer", 20*time.Second, time.Minute)

	// When its caller gives up, the rebuild may continue.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	c.answer = func(ctx context.Context, _ int, _ any) (any, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := cl.RebuildReplica(ctx, "n1", 7); !errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "partition 7 on n1") {
		t.Errorf("a rebuild that takes too long: %v", err)
	}
}
