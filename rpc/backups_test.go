package rpc_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

func serveBackups(t *testing.T, o *operator) perdurev1.BackupsClient {
	t.Helper()
	s, _ := serveOperator(t, o)
	conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return perdurev1.NewBackupsClient(conn)
}

func TestBackupsAskTheOperator(t *testing.T) {
	o := newOperator()
	c := serveBackups(t, o)
	asked := func(in proto.Message) {
		t.Helper()
		if got := receive(t, "request", o.asked); !proto.Equal(got, in) {
			t.Errorf("%v reached the operator as %v", in, got)
		}
		receive(t, "bound", o.bounded)
	}
	got, err := c.Cut(soon(t), &perdurev1.CutRequest{})
	if err != nil || got.Cut != 3 {
		t.Errorf("cut: %v, %v", got, err)
	}
	asked(&perdurev1.CutRequest{})
	list := &perdurev1.ListFilesRequest{Cut: 3, Partition: 2}
	files, err := c.List(soon(t), list)
	if err != nil || files.Index != 7 || len(files.Files) != 1 {
		t.Errorf("list: %v, %v", files, err)
	}
	asked(list)
	read := &perdurev1.ReadFileRequest{Cut: 3, Partition: 2, Name: "f", Offset: 1}
	stream, err := c.Read(soon(t), read)
	if err != nil {
		t.Fatal(err)
	}
	if chunk, err := stream.Recv(); err != nil || string(chunk.Data) != "ab" {
		t.Errorf("read: %v, %v", chunk, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the file: %v", err)
	}
	asked(read)
	// The hash of a file is that of what Read sends.
	sum, err := c.Hash(soon(t), &perdurev1.HashFileRequest{Cut: 3, Partition: 2, Name: "f"})
	if want := sha256.Sum256([]byte("ab")); err != nil || sum.Sha256 != hex.EncodeToString(want[:]) {
		t.Errorf("hash: %v, %v", sum, err)
	}
	asked(&perdurev1.ReadFileRequest{Cut: 3, Partition: 2, Name: "f"})
	delta := &perdurev1.DeltaRequest{Cut: 3, Partition: 2, FromCut: 2, FromIndex: 5, LimitBytes: 9}
	if got, err := c.Delta(soon(t), delta); err != nil || got.File.GetSize() != 5 {
		t.Errorf("delta: %v, %v", got, err)
	}
	asked(delta)
	release := &perdurev1.ReleaseCutRequest{Cut: 3}
	if got, err := c.Release(soon(t), release); err != nil || got.Released != 1 {
		t.Errorf("release: %v, %v", got, err)
	}
	asked(release)
	o.fail = api.Errorf(perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND, "none")
	_, err = c.List(soon(t), list)
	refused(t, "what the operator refuses", err, perdurev1.Reason_REASON_CHECKPOINT_NOT_FOUND)
}

func TestBackupsRefusals(t *testing.T) {
	o := newOperator()
	c := serveBackups(t, o)
	for _, in := range []*perdurev1.ListFilesRequest{{}, {Cut: 1, Partition: 16384}} {
		_, err := c.List(soon(t), in)
		refused(t, in.String(), err, bad)
	}
	for _, in := range []*perdurev1.ReadFileRequest{{}, {Cut: 1}, {Name: "f"}, {Cut: 1, Partition: 16384, Name: "f"}, {Cut: 1, Name: strings.Repeat("f", 256)}} {
		stream, err := c.Read(soon(t), in)
		if err == nil {
			_, err = stream.Recv()
		}
		refused(t, in.String(), err, bad)
	}
	for _, in := range []*perdurev1.HashFileRequest{{}, {Cut: 1}, {Name: "f"}, {Cut: 1, Partition: 16384, Name: "f"}, {Cut: 1, Name: strings.Repeat("f", 256)}} {
		_, err := c.Hash(soon(t), in)
		refused(t, in.String(), err, bad)
	}
	for _, in := range []*perdurev1.DeltaRequest{{}, {Cut: 1}, {FromCut: 1}, {Cut: 2, FromCut: 2}, {Cut: 2, FromCut: 3}, {Cut: 2, FromCut: 1, Partition: 16384}} {
		_, err := c.Delta(soon(t), in)
		refused(t, in.String(), err, bad)
	}
	_, err := c.Release(soon(t), &perdurev1.ReleaseCutRequest{})
	refused(t, "cut 0", err, bad)
	if n := len(o.asked); n != 0 {
		t.Errorf("%d refused requests reached the operator", n)
	}
}
