package lint

import (
	"fmt"
	"slices"
	"strings"
)

// A place is one row of the table of floors: a top folder, or a sub-folder with limits of its own.
type place struct {
	dir   string
	floor int
	// only, if not nil, lists the packages of the project that it may import; being lower is not enough.
	only []string
	// siblings, if not nil, lists the packages of its own top folder that it may import, in addition to those
	// below it. Its test files are free of this limit.
	siblings []string
	// peers are packages of its own floor that it may import as exceptions, each with the reason.
	peers map[string]string
	// tests are further packages that its test files may import, each with the reason.
	tests map[string]string
	// avoids are the foreign packages, with all below them, that it must not know. Its test files are
	// free of this limit.
	avoids []string
}

// partitionFloor is the lowest floor with clocks, goroutines and a network; the floors below are pure.
const partitionFloor = 3

// The packages that "must not know" refers to, as imports.
var (
	storage   = []string{"github.com/cockroachdb/pebble", "go.etcd.io/bbolt", "github.com/hashicorp/raft-boltdb"}
	consensus = []string{"github.com/hashicorp/raft", "github.com/hashicorp/memberlist"}
	network   = []string{"google.golang.org/grpc", "net"}
	outside   = slices.Concat(storage, consensus, network)
)

// wholeNode lets the tests of a library run against a real node.
var wholeNode = map[string]string{"embed": "its tests talk to a whole node in their own process"}

// table is the table of layers. Each place may import packages of a lower floor, and those of its top folder;
// sub-folders belong to the floor of their top folder. Packages under internal/ are below all floors: every
// package may import them, and they import nothing of the project but their own sub-folders.
var table = []place{
	{dir: "id", floor: 0, avoids: outside},
	{dir: "api", floor: 0, avoids: slices.Concat(storage, consensus)}, // its services and errors have a wire form

	{dir: "graph", floor: 1, avoids: outside},
	{dir: "journal", floor: 1, avoids: outside},
	{dir: "reduction", floor: 1, avoids: outside},
	{dir: "recovery", floor: 1, avoids: outside},
	{dir: "entity", floor: 1, avoids: outside},
	{dir: "cut", floor: 1, avoids: outside},

	{dir: "fsm", floor: 2, avoids: network}, // adapts the machine to storage and Raft
	{dir: "fsm/state", floor: 2, avoids: outside, siblings: []string{}},
	{dir: "fsm/wire", floor: 2, avoids: outside, siblings: []string{"fsm/state"}},
	{dir: "fsm/query", floor: 2, avoids: outside, siblings: []string{"fsm/state", "fsm/wire", "fsm/histories"}}, // cannot write
	{dir: "fsm/histories", floor: 2, avoids: outside, siblings: []string{"fsm/state", "fsm/wire", "fsm/audit"}},
	{dir: "fsm/audit", floor: 2, avoids: outside, siblings: []string{"fsm/state", "fsm/wire"}}, // cannot reach the machine's guards
	{dir: "fsm/restore", floor: 2, avoids: outside, siblings: []string{"fsm/state"}},
	{dir: "fsm/machine", floor: 2, avoids: outside, siblings: []string{"fsm/state", "fsm/wire", "fsm/audit", "fsm/restore", "fsm/histories"}}, // audit: its check of what a command has written

	{dir: "partition", floor: partitionFloor},
	{dir: "partition/addresses", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/admission", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/auditor", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/cluster", floor: partitionFloor, siblings: []string{"partition/identity", "partition/peers", "partition/raftgroup", "partition/refusal", "partition/transport"}},
	{dir: "partition/group", floor: partitionFloor, siblings: []string{"partition/addresses", "partition/admission", "partition/disk", "partition/groupmetrics", "partition/identity", "partition/quota", "partition/raftgroup", "partition/raftlog", "partition/raftlogger", "partition/refusal", "partition/repair", "partition/snapshot", "partition/transport", "partition/watch", "partition/workers"}},
	{dir: "partition/groupmetrics", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/grouptest", floor: partitionFloor, siblings: []string{"partition/identity"}},
	{dir: "partition/identity", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/peers", floor: partitionFloor, siblings: []string{"partition/transport"}},
	{dir: "partition/raftgroup", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/raftlog", floor: partitionFloor, siblings: []string{"partition/stable/boltfile"}},
	{dir: "partition/stable", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/repair", floor: partitionFloor, siblings: []string{"partition/disk", "partition/identity", "partition/raftlog", "partition/refusal", "partition/snapshot"}},
	{dir: "partition/refusal", floor: partitionFloor, siblings: []string{}},
	{dir: "partition/watch", floor: partitionFloor, siblings: []string{}},
	{dir: "membership", floor: partitionFloor},

	{dir: "backup", floor: 4, only: []string{"api"}, avoids: consensus}, // a store's folder is a file system of pebble's
	{dir: "rpc", floor: 4, avoids: storage, tests: wholeNode},
	{dir: "resonate", floor: 4, avoids: storage, tests: wholeNode,
		peers: map[string]string{"client": "its tests ask a cluster of processes who leads"}},
	{dir: "client", floor: 4, only: []string{"api", "id", "graph"}, avoids: slices.Concat(storage, consensus), tests: wholeNode},
	{dir: "durable", floor: 4, only: []string{"api", "id", "journal", "graph"}, // journal: replay reads what it wrote
		peers:  map[string]string{"client": "a worker is a client that also runs functions"},
		avoids: slices.Concat(storage, consensus), tests: wholeNode},

	{dir: "embed", floor: 5},
	{dir: "jepsen", floor: 5, only: []string{"api", "id", "client", "durable", "graph", "reduction", "recovery"}}, // they see a cluster from outside; reduction and recovery: checkers hold it against the rules
	{dir: "bench", floor: 5, only: []string{"api", "id", "client", "durable"}},
	{dir: "bench/baseline", floor: 5, only: []string{"partition/raftlog", "partition/stable"}}, // the limit is made of a node's own log
	{dir: "bench/stored", floor: 5, only: []string{"api", "partition"}},                        // it fills a node's data directory without its ports

	{dir: "cmd", floor: 6},
	{dir: "examples", floor: 6},
}

// top is the first folder of a package's folder.
func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// house is the first two folders of a package's folder: under internal/, what belongs together.
func house(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return strings.Join(parts[:min(len(parts), 2)], "/")
}

// placeOf finds the row of a folder: the longest one that contains it.
func placeOf(rows []place, dir string) (place, bool) {
	var found place
	for _, p := range rows {
		if under(dir, p.dir) && len(p.dir) > len(found.dir) {
			found = p
		}
	}
	return found, found.dir != ""
}

// under reports whether path is root or below it.
func under(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// checkFloors is the law "floors". It reports imports that break it, folders without a floor, and
// exceptions that nothing uses.
func checkFloors(t *tree, rows []place) []finding {
	var out []finding
	used := make(map[string]bool) // "durable client": the exception that was needed
	for _, f := range t.goFiles() {
		p, known := placeOf(rows, f.dir())
		if !known && top(f.dir()) != "internal" {
			out = append(out, finding{f.path, 0, "floors", fmt.Sprintf(
				"folder %q is on no floor: give it a row in internal/lint/floors.go and in ARCHITECTURE.md", top(f.dir()))})
			continue
		}
		for _, imp := range f.imports(t.fset) {
			why := ""
			if target, ours := strings.CutPrefix(imp.path, module+"/"); ours {
				why = checkImport(rows, p, f, target, used)
			} else if !f.isTest() {
				why = checkForeign(p, f, imp.path)
			}
			if why != "" {
				out = append(out, finding{f.path, imp.line, "floors", why})
			}
		}
	}
	for _, p := range rows {
		for peer := range p.peers { //lint:sorted the findings are sorted at the end
			if !used[p.dir+" "+peer] && hasSource(t, p.dir) && hasSource(t, peer) {
				out = append(out, finding{"internal/lint/floors.go", 0, "floors", fmt.Sprintf(
					"%s no longer imports %s: remove the exception", p.dir, peer)})
			}
		}
	}
	return out
}

// checkImport says why a file may not import the project's folder target, or "".
func checkImport(rows []place, p place, f *sourceFile, target string, used map[string]bool) string {
	own, other := top(f.dir()), top(target)
	switch {
	case own == "internal" && (house(f.dir()) == house(target) || f.isTest() && target == "internal/testkit"):
		return ""
	case own == "internal":
		return fmt.Sprintf("internal packages are below every floor and import nothing of the project, but this one imports %s", target)
	case other == "internal":
		return ""
	}
	listed := func(dir string) bool { return under(target, dir) }
	if own == other {
		if p.siblings != nil && !f.isTest() && !listed(p.dir) && !slices.ContainsFunc(p.siblings, listed) {
			return fmt.Sprintf("%s imports %s, but of %s it may know only %s", p.dir, target, own, strings.Join(p.siblings, ", "))
		}
		return ""
	}
	q, known := placeOf(rows, target)
	if !known {
		return fmt.Sprintf("imports %s, which is on no floor", target)
	}
	for peer := range p.peers { //lint:sorted at most one peer contains the target
		if listed(peer) {
			used[p.dir+" "+peer] = true
			return ""
		}
	}
	if f.isTest() {
		for dir := range p.tests { //lint:sorted at most one contains the target
			if listed(dir) {
				return ""
			}
		}
	}
	switch {
	case q.floor > p.floor:
		return fmt.Sprintf("%s (floor %d) imports %s (floor %d): a floor imports only lower floors", p.dir, p.floor, target, q.floor)
	case q.floor == p.floor:
		return fmt.Sprintf("%s imports %s, which is on its own floor %d: neighbours do not know each other", p.dir, target, p.floor)
	case p.only != nil && !slices.ContainsFunc(p.only, listed):
		return fmt.Sprintf("%s imports %s, but of the project it may know only %s", p.dir, target, strings.Join(p.only, ", "))
	}
	return ""
}

// checkForeign returns why a file may not import a package from outside the project, or "".
func checkForeign(p place, f *sourceFile, path string) string {
	if f.generated() {
		return ""
	}
	for _, a := range p.avoids {
		if under(path, a) {
			return fmt.Sprintf("%s imports %s, which it must not know (%s)", p.dir, path, a)
		}
	}
	return ""
}

// hasSource reports whether a place holds code: an exception for a package that is still to be written is
// not idle.
func hasSource(t *tree, dir string) bool {
	return slices.ContainsFunc(t.goFiles(), func(f *sourceFile) bool {
		return under(f.dir(), dir) && !f.isTest() && len(f.ast.Decls) > 0
	})
}
