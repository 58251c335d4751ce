package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	// Linked in for their descriptors, which google/rpc imports resolve to.
	_ "google.golang.org/genproto/googleapis/rpc/code"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails"
	_ "google.golang.org/genproto/googleapis/rpc/status"
)

// A generator is one code generator of go.mod's tool block, and the parameter it is given.
type generator struct {
	tool      string
	parameter string
}

var generators = []generator{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-go-grpc", "paths=source_relative"},
}

// generate compiles every .proto file under api and returns the generated files by their path relative
// to api. root is the module whose go.mod names the tools. It writes nothing.
func generate(ctx context.Context, root, api string) (map[string][]byte, error) {
	names, err := protoFiles(api)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no .proto file under %s", api)
	}
	files, err := compile(ctx, api, names)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte)
	for _, g := range generators {
		req := &pluginpb.CodeGeneratorRequest{
			FileToGenerate: names,
			Parameter:      proto.String(g.parameter),
			ProtoFile:      files,
		}
		resp, err := g.run(ctx, root, req)
		if err != nil {
			return nil, err
		}
		for _, f := range resp.GetFile() {
			if _, twice := out[f.GetName()]; twice || f.GetInsertionPoint() != "" {
				return nil, fmt.Errorf("%s: wrote %s over another generator's output", g.tool, f.GetName())
			}
			out[f.GetName()] = []byte(f.GetContent())
		}
	}
	return out, nil
}

// protoFiles lists the .proto files under api, slash-separated and sorted: the order fixes the output.
func protoFiles(api string) ([]string, error) {
	return filesWithSuffix(api, ".proto")
}

func filesWithSuffix(dir, suffix string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && strings.HasSuffix(path, suffix) {
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// compile parses and links names and returns them with all they import, each file after its imports,
// as the plugin protocol asks.
func compile(ctx context.Context, api string, names []string) ([]*descriptorpb.FileDescriptorProto, error) {
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{api}},
			protocompile.ResolverFunc(linkedIn),
		}),
		// The generators copy the comments of the schema into the Go files.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	var (
		out  []*descriptorpb.FileDescriptorProto
		seen = make(map[string]bool)
		add  func(protoreflect.FileDescriptor)
	)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			imp := fd.Imports().Get(i).FileDescriptor
			if f := files.FindFileByPath(imp.Path()); f != nil {
				imp = f // the compiled file itself: an import is a view of it without its comments
			}
			add(imp)
		}
		out = append(out, fileProto(fd))
	}
	for _, f := range files {
		add(f)
	}
	return out, nil
}

// linkedIn resolves an import among the descriptors compiled into this program.
func linkedIn(path string) (protocompile.SearchResult, error) {
	if !strings.HasPrefix(path, "google/rpc/") {
		return protocompile.SearchResult{}, protoregistry.NotFound
	}
	fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Desc: fd}, nil
}

func fileProto(fd protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if r, ok := fd.(linker.Result); ok {
		return r.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(fd)
}

// run feeds one request to the generator, at the version that root's go.mod pins.
func (g generator) run(ctx context.Context, root string, req *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("%s: encode the request: %w", g.tool, err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "tool", g.tool)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = root, bytes.NewReader(in), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go tool %s: %w: %s", g.tool, err, strings.TrimSpace(stderr.String()))
	}
	resp := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(stdout.Bytes(), resp); err != nil {
		return nil, fmt.Errorf("%s: decode the answer: %w", g.tool, err)
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("%s: %s", g.tool, resp.GetError())
	}
	return resp, nil
}

// A change is one generated file that is not as its source says.
type change struct {
	path   string // relative to api
	why    string // "missing", "stale" or "without a source"
	remove bool
}

// compare lists, in the order of their paths, the generated files under api that differ from want.
func compare(api string, want map[string][]byte) ([]change, error) {
	var out []change
	for path, content := range want {
		have, err := os.ReadFile(filepath.Join(api, filepath.FromSlash(path)))
		switch {
		case os.IsNotExist(err):
			out = append(out, change{path: path, why: "missing"})
		case err != nil:
			return nil, err
		case !bytes.Equal(have, content):
			out = append(out, change{path: path, why: "stale"})
		}
	}
	// Both generators name their files *.pb.go; nothing else under api does.
	have, err := filesWithSuffix(api, ".pb.go")
	if err != nil {
		return nil, err
	}
	for _, path := range have {
		if _, ok := want[path]; !ok {
			out = append(out, change{path: path, why: "without a source", remove: true})
		}
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// apply brings the files under api to what want says, touching only those that differ, so that an
// unchanged schema rebuilds nothing.
func apply(api string, want map[string][]byte, changes []change) error {
	for _, c := range changes {
		path := filepath.Join(api, filepath.FromSlash(c.path))
		if c.remove {
			if err := os.Remove(path); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, want[c.path], 0o644); err != nil {
			return err
		}
	}
	return nil
}
