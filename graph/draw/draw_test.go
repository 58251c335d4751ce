package draw_test

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph/draw"
)

var update = flag.Bool("update", false, "write the golden files")

func node(id string, after ...string) *perdurev1.GraphNode {
	return &perdurev1.GraphNode{Id: id, After: after, Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: "work"}}}
}

func order() (*perdurev1.Graph, func(string) string) {
	g := &perdurev1.Graph{Name: "order <42>", Nodes: []*perdurev1.GraphNode{
		node("parse"), node("check", "parse"), node("stock", "parse"), node("price", "parse"),
		{Id: "call", After: []string{"check", "stock"}, Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{}}},
		{Id: "approve", After: []string{"price"}, Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "approved by somebody"}}},
		{Id: "pause", Kind: &perdurev1.GraphNode_Sleep{}},
		{Id: "sub", After: []string{"call", "pause"}, Kind: &perdurev1.GraphNode_Subgraph{Subgraph: &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{node("a")}}}},
		node("ship", "sub", "approve", "parse"), node("mail", "approve", "parse"), node("log", "check", "ship"), node("alone"),
	}}
	states := map[string]string{"parse": "completed", "check": "completed", "stock": "failed", "price": "running", "call": "failed",
		"approve": "waiting", "pause": "skipped", "alone": "odd"}
	return g, func(id string) string {
		if s := states[id]; s != "" {
			return s
		}
		return "pending"
	}
}

// layered makes layers in which each node comes after a few of the layer before.
func layered(layers, width int) *perdurev1.Graph {
	g := &perdurev1.Graph{Name: fmt.Sprintf("%d layers of %d", layers, width)}
	id := func(l, w int) string { return fmt.Sprintf("n%d.%d", l, w) }
	for l := range layers {
		for w := range width {
			n := node(id(l, w))
			if l > 0 {
				for k := range min(3, width) {
					n.After = append(n.After, id(l-1, (w*7+k*k*5+l)%width))
				}
				if l > 3 && w%5 == 0 {
					n.After = append(n.After, id(l-4, (w+3)%width))
				}
			}
			g.Nodes = append(g.Nodes, n)
		}
	}
	return g
}

func halfDone(id string) string {
	var l, w int
	if _, err := fmt.Sscanf(id, "n%d.%d", &l, &w); err != nil {
		return ""
	}
	switch {
	case l < 4:
		return []string{"completed", "completed", "completed", "skipped", "completed"}[(l+w)%5]
	case l == 4 && w == 3:
		return "failed"
	case l == 4:
		return []string{"completed", "running"}[w%2]
	}
	return "pending"
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the picture has changed; look at it, then write it with -update", path)
	}
}

func TestPictures(t *testing.T) {
	g, state := order()
	golden(t, "order.svg", draw.SVG(g, state, draw.Options{}))
	golden(t, "plain.svg", draw.SVG(g, nil, draw.Options{Title: "A graph alone"}))
	golden(t, "order.dot", []byte(draw.DOT(g, state)))
	golden(t, "wide.svg", draw.SVG(layered(10, 20), halfDone, draw.Options{}))
	golden(t, "summary.svg", draw.SVG(layered(9, 30), halfDone, draw.Options{}))
	golden(t, "chain.svg", draw.SVG(layered(300, 2), halfDone, draw.Options{}))
	golden(t, "empty.svg", draw.SVG(nil, nil, draw.Options{}))
}

// A box is a node's rectangle in a picture.
type box struct{ x, y, w, h int }

// read parses a picture as XML and finds its boxes by id.
func read(t interface{ Fatalf(string, ...any) }, svg []byte) map[string]box {
	boxes := make(map[string]box)
	d := xml.NewDecoder(bytes.NewReader(svg))
	id := ""
	for {
		token, err := d.Token()
		if err == io.EOF {
			return boxes
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attr := make(map[string]string)
		for _, a := range start.Attr {
			attr[a.Name.Local] = a.Value
		}
		number := func(name string) int {
			n, err := strconv.Atoi(attr[name])
			if err != nil {
				t.Fatalf("%s=%q", name, attr[name])
			}
			return n
		}
		if start.Name.Local == "g" {
			id = attr["data-node"]
		}
		if _, seen := boxes[id]; start.Name.Local == "rect" && id != "" && !seen {
			boxes[id] = box{number("x"), number("y"), number("width"), number("height")}
		}
	}
}

// TestLaws: the picture is XML and always the same; every node is in it once; no two boxes touch; time goes
// from left to right in all of it, or down in all of it; everything is inside.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "nodes")
		g := &perdurev1.Graph{Name: rapid.String().Draw(t, "name")}
		for i := range n {
			node := node("n" + strconv.Itoa(i))
			node.GetFunction().Function = rapid.String().Draw(t, "function")
			for j := range i {
				if rapid.IntRange(0, 9).Draw(t, "edge") == 0 {
					node.After = append(node.After, "n"+strconv.Itoa(j))
				}
			}
			g.Nodes = append(g.Nodes, node)
		}
		state := func(id string) string {
			return []string{"pending", "running", "failed", "", "<&>"}[len(id)*int(id[len(id)-1])%5]
		}
		svg := draw.SVG(g, state, draw.Options{})
		if again := draw.SVG(g, state, draw.Options{}); !bytes.Equal(svg, again) {
			t.Fatal("two pictures of one graph")
		}
		boxes := read(t, svg)
		if len(boxes) != n {
			t.Fatalf("%d boxes for %d nodes", len(boxes), n)
		}
		var width, height int
		if _, err := fmt.Sscanf(string(svg[bytes.Index(svg, []byte(`width="`)):]), `width="%d" height="%d"`, &width, &height); err != nil {
			t.Fatal(err)
		}
		right, down := true, true
		for i, a := range g.Nodes {
			p := boxes[a.Id]
			if p.x < 0 || p.y < 0 || p.x+p.w > width || p.y+p.h > height {
				t.Fatalf("%s at %v is outside %d×%d", a.Id, p, width, height)
			}
			for _, b := range g.Nodes[:i] {
				q := boxes[b.Id]
				if p.x < q.x+q.w && q.x < p.x+p.w && p.y < q.y+q.h && q.y < p.y+p.h {
					t.Fatalf("%s %v and %s %v overlap", a.Id, p, b.Id, q)
				}
			}
			for _, id := range a.After {
				q := boxes[id]
				right, down = right && q.x+q.w < p.x, down && q.y+q.h < p.y
				if !right && !down {
					t.Fatalf("%s %v comes after %s %v", a.Id, p, id, q)
				}
			}
		}
		read(t, draw.SVG(g, state, draw.Options{MaxNodes: 1})) // as counts
	})
}

// A graph that is deep and not wide fits on a page: time goes down where it would not fit across.
func TestDeepGraphsFitOnAPage(t *testing.T) {
	for layers, across := range map[int]bool{2: true, 4: true, 10: false, 60: false} {
		svg := draw.SVG(layered(layers, 3), halfDone, draw.Options{})
		var width, height int
		if _, err := fmt.Sscanf(string(svg[bytes.Index(svg, []byte(`width="`)):]), `width="%d" height="%d"`, &width, &height); err != nil {
			t.Fatal(err)
		}
		if width > 1200 || (height < width) != across {
			t.Errorf("%d layers are %d×%d", layers, width, height)
		}
	}
	// A graph that is both is drawn the narrower way.
	boxes := read(t, draw.SVG(layered(10, 20), halfDone, draw.Options{}))
	if boxes["n0.0"].x != boxes["n0.19"].x {
		t.Error("10 layers of 20 nodes go down the page")
	}
}

// TestAChainIsStraight is the least that can be asked of a layout.
func TestAChainIsStraight(t *testing.T) {
	g := &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{node("a"), node("b", "a"), node("c", "b"), node("d", "c")}}
	boxes := read(t, draw.SVG(g, nil, draw.Options{}))
	for _, id := range []string{"b", "c", "d"} {
		if boxes[id].y != boxes["a"].y {
			t.Errorf("%v", boxes)
		}
	}
}

// FuzzDraw: any graph has a picture, valid or not.
func FuzzDraw(f *testing.F) {
	f.Add("a b:a c:b,a", "running")
	f.Add("a:b b:a c:c a d:nobody", "")
	f.Add("a:c b:a,b c:b d:c e:d,a", "\x00<")
	f.Fuzz(func(t *testing.T, text, state string) {
		g := &perdurev1.Graph{Name: text}
		for field := range strings.FieldsSeq(text) {
			id, after, _ := strings.Cut(field, ":")
			g.Nodes = append(g.Nodes, node(id, strings.Split(after, ",")...))
		}
		if len(g.Nodes) > 100 {
			return
		}
		read(t, draw.SVG(g, func(string) string { return state }, draw.Options{Title: state}))
		read(t, draw.SVG(g, func(string) string { return state }, draw.Options{MaxNodes: 2}))
		if dot := draw.DOT(g, func(string) string { return state }); !utf8.ValidString(dot) {
			t.Fatalf("%q", dot)
		}
	})
}

func BenchmarkSVG(b *testing.B) {
	g := layered(10, 20)
	for b.Loop() {
		draw.SVG(g, halfDone, draw.Options{})
	}
}
