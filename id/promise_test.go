package id

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("x", MaxIDBytes)
	good := []struct {
		text  string
		root  string
		depth int
	}{
		{"order-42", "order-42", 0},
		{"order-42:0", "order-42", 1},
		{"order-42:0.3", "order-42", 2},
		{"a.b.7:10.0.4294967295", "a.b.7", 3},
		{"\xff\xfe", "\xff\xfe", 0},
		{long + ":4294967295", long, 1},
	}
	for _, c := range good {
		p, err := Parse(c.text)
		if err != nil || string(p) != c.text || p.String() != c.text {
			t.Errorf("Parse(%q) = %q, %v", c.text, p, err)
		}
		if p.Root() != c.root || p.Depth() != c.depth {
			t.Errorf("%q: root %q depth %d, want %q %d", c.text, p.Root(), p.Depth(), c.root, c.depth)
		}
	}
	bad := []struct{ text, rule string }{
		{"", RuleEmpty},
		{":0", RuleEmpty},
		{long + "x", RuleTooLong},
		{"a\x00b", RuleNUL},
		{"a\x00:0", RuleNUL},
		{"a:", RulePath},
		{"a:00", RulePath},
		{"a:01", RulePath},
		{"a:0.", RulePath},
		{"a:.0", RulePath},
		{"a:0..1", RulePath},
		{"a:-1", RulePath},
		{"a:+1", RulePath},
		{"a: 1", RulePath},
		{"a:1x", RulePath},
		{"a:0:1", RulePath},
		{"a:4294967296", RulePath},
		{"a:99999999999", RulePath},
		{"a:0.\x00", RulePath},
		{"a:" + strings.Repeat("9", 500), RulePath},
	}
	for _, c := range bad {
		p, err := Parse(c.text)
		var refused *Error
		if !errors.As(err, &refused) || refused.Rule != c.rule || refused.ID != c.text || p != "" {
			t.Errorf("Parse(%.40q) = %q, %v; want rule %s and the whole text", c.text, p, err, c.rule)
		}
	}
}

func TestFamily(t *testing.T) {
	root := PromiseID("a.b")
	child := root.Child(7)
	grandchild := child.Child(4294967295)
	if child != "a.b:7" || grandchild != "a.b:7.4294967295" {
		t.Fatalf("children are %q and %q", child, grandchild)
	}
	if p, ok := grandchild.Parent(); !ok || p != child {
		t.Errorf("parent of %q is %q, %v", grandchild, p, ok)
	}
	if p, ok := child.Parent(); !ok || p != root {
		t.Errorf("parent of %q is %q, %v", child, p, ok)
	}
	if p, ok := root.Parent(); ok || p != "" {
		t.Errorf("a root has the parent %q", p)
	}
	if n, ok := grandchild.Last(); !ok || n != 4294967295 {
		t.Errorf("last of %q is %d, %v", grandchild, n, ok)
	}
	if _, ok := root.Last(); ok {
		t.Error("a root has a last path element")
	}
	if _, ok := PromiseID("a:x").Last(); ok {
		t.Error("a text that is no identifier has a last path element")
	}
	strangers := []struct{ child, parent PromiseID }{
		{root, root}, {grandchild, root}, {root, child}, {child, "a"}, {child, "a.c"}, {child, ""},
		{"a.b:07", root}, {"a.b:", root}, {"a.b.7", root}, {"a.b:7:1", child}, {"a.b:7.", child},
		{"a.b:7.x", child}, {"a.b:4294967296", root}, {"", ""}, {":1", ""},
	}
	for _, s := range strangers {
		if n, ok := s.child.IsChildOf(s.parent); ok {
			t.Errorf("%q is child %d of %q", s.child, n, s.parent)
		}
	}
}

func TestIsChildOfDoesNotAllocate(t *testing.T) {
	parent := PromiseID("order-42:0.3")
	child := parent.Child(123456)
	allocations := testing.AllocsPerRun(100, func() {
		if n, ok := child.IsChildOf(parent); !ok || n != 123456 {
			t.Fatalf("IsChildOf = %d, %v", n, ok)
		}
		Slot("default", string(child))
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// drawID draws a canonical identifier with its parts.
func drawID(t *rapid.T) (PromiseID, string, []uint32) {
	root := rapid.StringMatching(`[a-z0-9.\-]{1,12}`).Draw(t, "root")
	path := rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "path")
	p := PromiseID(root)
	for _, n := range path {
		p = p.Child(n)
	}
	return p, root, path
}

// Parse accepts the ids that Child builds, and the accessors return their parts.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, root, path := drawID(t)
		parsed, err := Parse(string(p))
		if err != nil || parsed != p {
			t.Fatalf("Parse(%q) = %q, %v", p, parsed, err)
		}
		if p.Root() != root || p.Depth() != len(path) || Origin(string(p)) != root {
			t.Fatalf("%q: root %q, depth %d, origin %q", p, p.Root(), p.Depth(), Origin(string(p)))
		}
		for i := len(path) - 1; i >= 0; i-- {
			last, ok := p.Last()
			parent, hasParent := p.Parent()
			if !ok || !hasParent || last != path[i] {
				t.Fatalf("%q: last %d, %v, parent %q", p, last, ok, parent)
			}
			if n, child := p.IsChildOf(parent); !child || n != last {
				t.Fatalf("%q is not child %d of %q", p, last, parent)
			}
			p = parent
		}
	})
}

// Of two identifiers, one is the other's child exactly when Child says so.
func TestIsChildOfAgreesWithChild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, _, _ := drawID(t)
		n := rapid.Uint32().Draw(t, "n")
		other, _, _ := drawID(t)
		if got, ok := parent.Child(n).IsChildOf(parent); !ok || got != n {
			t.Fatalf("child %d of %q is not: %d, %v", n, parent, got, ok)
		}
		if got, ok := other.IsChildOf(parent); ok && parent.Child(got) != other {
			t.Fatalf("%q claims to be child %d of %q", other, got, parent)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"order-42", "order-42:0", "order-42:0.3", "a:", "a:01", "a:4294967296", ":", "a.b:0", "a\x00", "a:0:0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			var refused *Error
			if !errors.As(err, &refused) || refused.ID != text || refused.Rule == "" || p != "" {
				t.Fatalf("Parse(%q) = %q, %#v", text, p, err)
			}
			return
		}
		// An accepted text is rebuilt from its parts, so it is the only text of its identifier.
		rebuilt := PromiseID(p.Root())
		var path []uint32
		for q := p; ; {
			n, ok := q.Last()
			if !ok {
				break
			}
			path = append(path, n)
			q, _ = q.Parent()
		}
		for i := len(path) - 1; i >= 0; i-- {
			rebuilt = rebuilt.Child(path[i])
		}
		if rebuilt != p || string(p) != text {
			t.Fatalf("Parse(%q) = %q, rebuilt %q", text, p, rebuilt)
		}
		if err := ValidateRoot(p.Root()); err != nil {
			t.Fatalf("Parse(%q) accepted a root that is none: %v", text, err)
		}
	})
}
