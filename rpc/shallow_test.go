package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// TestShallow: a shallow copy is equal to the message, with what this program does not know of it, and does not change it.
func TestShallow(t *testing.T) {
	in := &perdurev1.SubmitGraphRequest{
		Request: &perdurev1.RequestID{Id: []byte("0123456789abcdef")}, Namespace: "ns", Id: "id",
		Graph: &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{{Id: "a"}, {Id: "b", After: []string{"a"}}}},
		Input: []byte("1"), Tags: map[string]string{"k": "v"}, TimeoutMs: 5, AllowUnknownFunctions: true,
	}
	in.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1})
	want := proto.CloneOf(in)
	out := shallow(in)
	if !proto.Equal(out, want) {
		t.Fatalf("the copy is %v", out)
	}
	if out.Graph != in.Graph {
		t.Error("the graph was copied")
	}
	out.Request = nil
	if !proto.Equal(in, want) {
		t.Errorf("the message became %v", in)
	}
}
