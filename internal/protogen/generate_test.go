package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const typesProto = `syntax = "proto3";
package sample.v1;
option go_package = "sample/v1;samplev1";
import "google/protobuf/timestamp.proto";
import "google/rpc/status.proto";
// Thing is what the service hands out.
message Thing {
  // made is when.
  google.protobuf.Timestamp made = 1;
  google.rpc.Status last = 2;
}
`

const serviceProto = `syntax = "proto3";
package sample.v1;
option go_package = "sample/v1;samplev1";
import "sample/v1/types.proto";
service Things { rpc Make(Thing) returns (stream Thing); }
`

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sample(t *testing.T) (root, api string) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	api = t.TempDir()
	write(t, api, "sample/v1/types.proto", typesProto)
	write(t, api, "sample/v1/service.proto", serviceProto)
	return root, api
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestCommittedFilesAreFresh fails when only the .proto file changed, or a generated one was edited by hand.
func TestCommittedFilesAreFresh(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the code generators; the full test run checks it")
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	api := filepath.Join(root, "api")
	want, err := generate(bounded(t), root, api)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := compare(api, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		t.Errorf("api/%s is %s; run: go generate ./api/...", c.path, c.why)
	}
}

func TestGenerateResolvesImportsAndIsDeterministic(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the code generators; the full test run checks it")
	}
	root, api := sample(t)
	first, err := generate(bounded(t), root, api)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(first))
	if want := []string{"sample/v1/service.pb.go", "sample/v1/service_grpc.pb.go", "sample/v1/types.pb.go"}; !slices.Equal(names, want) {
		t.Fatalf("generated %v, want %v", names, want)
	}
	types := string(first["sample/v1/types.pb.go"])
	for _, want := range []string{
		"package samplev1",
		"// Thing is what the service hands out.", // comments of the schema reach the Go type
		`json:"made,omitempty"`,
		"*status.Status",
	} {
		if !strings.Contains(types, want) {
			t.Errorf("types.pb.go does not contain %q", want)
		}
	}
	second, err := generate(bounded(t), root, api)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(first, second, bytes.Equal) {
		t.Error("two runs over the same sources differ")
	}
}

func TestCompareAndApply(t *testing.T) {
	api := t.TempDir()
	write(t, api, "v1/same.pb.go", "same")
	write(t, api, "v1/old.pb.go", "old")
	write(t, api, "v1/orphan.pb.go", "orphan")
	write(t, api, "v1/hand.go", "written by hand")
	want := map[string][]byte{
		"v1/same.pb.go": []byte("same"),
		"v1/old.pb.go":  []byte("new"),
		"v1/more.pb.go": []byte("more"),
	}
	changes, err := compare(api, want)
	if err != nil {
		t.Fatal(err)
	}
	expect := []change{
		{path: "v1/more.pb.go", why: "missing"},
		{path: "v1/old.pb.go", why: "stale"},
		{path: "v1/orphan.pb.go", why: "without a source", remove: true},
	}
	if !slices.Equal(changes, expect) {
		t.Fatalf("compare: %v, want %v", changes, expect)
	}
	if err := apply(api, want, changes); err != nil {
		t.Fatal(err)
	}
	if changes, err = compare(api, want); err != nil || len(changes) != 0 {
		t.Errorf("after apply: %v, %v, want no change", changes, err)
	}
	if have, err := os.ReadFile(filepath.Join(api, "v1/hand.go")); err != nil || string(have) != "written by hand" {
		t.Errorf("a file that is not generated was touched: %q, %v", have, err)
	}
}

func TestCompileNamesTheFileAndLine(t *testing.T) {
	api := t.TempDir()
	write(t, api, "bad/v1/bad.proto", "syntax = \"proto3\";\npackage bad.v1;\nmessage Bad { Missing field = 1; }\n")
	_, err := compile(t.Context(), api, []string{"bad/v1/bad.proto"})
	if err == nil || !strings.Contains(err.Error(), "bad/v1/bad.proto:3:15") {
		t.Errorf("compile: %v, want an error at bad/v1/bad.proto:3:15", err)
	}
}

func TestGenerateRefusesAnEmptyFolder(t *testing.T) {
	if _, err := generate(t.Context(), t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no .proto file") {
		t.Errorf("generate: %v, want: no .proto file", err)
	}
}
