// Package memlimit finds the memory limit of a process and sets it for Go's garbage collector.
//
// The bound is, in this order: the environment variable GOMEMLIMIT, which Go itself has read and which stays as it
// is; what the operator configured; the least memory limit of the process's control groups (cgroup v1 and v2). It is
// a soft limit: the collector works harder as the heap comes near it. It bounds no queue; those have bounds of their
// own. Below the limit, the heap's growth between two collections is bounded too (headroom.go).
package memlimit

import (
	"errors"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Variable is the environment variable that Go reads by itself.
const Variable = "GOMEMLIMIT"

// Request holds the process's settings for its memory.
type Request struct {
	// Configured is what the operator gives the process, in bytes; 0 for nothing.
	Configured int64
	// OffHeap is the libraries' memory outside Go's heap, in bytes, if they have any (see OffHeap).
	OffHeap int64
	// Lookup finds environment variables, as os.LookupEnv does.
	Lookup func(name string) (string, bool)
	// Root is the file system from "/" on, as os.DirFS("/").
	Root fs.FS
}

// Source says where a limit comes from.
type Source string

// The sources of a limit.
const (
	None        Source = "none"
	Environment Source = Variable
	Configured  Source = "configuration"
	CgroupV1    Source = "cgroup v1"
	CgroupV2    Source = "cgroup v2"
)

// Limit is what was found.
type Limit struct {
	Source Source
	// Process is the limit of the process, Heap the limit of Go's runtime, both in bytes. They are 0 when the
	// source is None or Environment: the caller then sets nothing.
	Process, Heap int64
}

// Find reads the limit. An error says that the control groups could not be read as what they are; there is no limit
// then.
func Find(r Request) (Limit, error) {
	if v, ok := r.Lookup(Variable); ok && v != "" {
		return Limit{Source: Environment}, nil
	}
	if r.Configured > 0 {
		return Limit{Configured, r.Configured, heap(r.Configured, r.OffHeap)}, nil
	}
	source, bytes, err := cgroups(r.Root)
	if err != nil || bytes == 0 {
		return Limit{Source: None}, err
	}
	return Limit{source, bytes, heap(bytes, r.OffHeap)}, nil
}

// heap is what is left for Go's runtime: nine tenths of the process's less the libraries' memory outside the
// heap, but half of the process's at least. A limit below what is live makes the collector run all the time.
func heap(process, offHeap int64) int64 {
	return max(process/10*9-offHeap, process/2)
}

// unlimited is where cgroup v1 says "no limit": the largest number of whole pages.
const unlimited = math.MaxInt64 / 4

// cgroups reads the least limit of the control groups that the process is in; 0 when there is none.
func cgroups(root fs.FS) (Source, int64, error) {
	table, err := fs.ReadFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return None, 0, nil
	}
	if err != nil {
		return None, 0, err
	}
	for line := range strings.Lines(string(table)) {
		// hierarchy:controllers:path
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var source Source
		var least int64
		switch {
		case parts[0] == "0" && parts[1] == "":
			source = CgroupV2
			least, err = leastOf(root, "sys/fs/cgroup", parts[2], "memory.max")
		case hasController(parts[1], "memory"):
			source = CgroupV1
			least, err = leastOf(root, "sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
		default:
			continue
		}
		if err != nil {
			return None, 0, err
		}
		if least > 0 {
			return source, least, nil
		}
	}
	return None, 0, nil
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// leastOf is the least limit of a group and all above it. A group that is not there counts for nothing: within a
// container the path may be the host's, and the container's own group is the top.
func leastOf(root fs.FS, top, group, file string) (least int64, err error) {
	group = path.Clean("/" + group)
	for {
		b, err := fs.ReadFile(root, path.Join(top, group, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return 0, err
		default:
			text := strings.TrimSpace(string(b))
			if text == "max" {
				break
			}
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return 0, err
			}
			if n > 0 && n < unlimited && (least == 0 || int64(n) < least) {
				least = int64(n)
			}
		}
		if group == "/" {
			return least, nil
		}
		group = path.Dir(group)
	}
}
