package reduction

import (
	"fmt"
	"testing"
)

// benchGraphs are the shapes that matter at each size: long, wide, and dense in between.
func benchGraphs(n int) map[string]Graph {
	ids := names("n", n)
	var layers [][]NodeID
	for i := 0; i < n; i += 10 {
		layers = append(layers, ids[i:min(i+10, n)])
	}
	return map[string]Graph{"path": Path(ids...), "star": Star(ids[0], ids[1:]...), "layers": Layered(layers...)}
}

func benchEach(b *testing.B, f func(b *testing.B, g Graph, r *Relation)) {
	for _, n := range []int{10, 1_000, 10_000} {
		for _, shape := range []string{"path", "star", "layers"} {
			g := benchGraphs(n)[shape]
			b.Run(fmt.Sprintf("%s/%d", shape, n), func(b *testing.B) {
				b.ReportAllocs()
				f(b, g, must(Lower(g)))
			})
		}
	}
}

func BenchmarkLower(b *testing.B) {
	benchEach(b, func(b *testing.B, g Graph, _ *Relation) {
		for b.Loop() {
			must(Lower(g))
		}
	})
}

// One fact, of a whole run of facts: time per fact should not grow with the graph.
func BenchmarkEngineFact(b *testing.B) {
	benchEach(b, func(b *testing.B, _ Graph, r *Relation) {
		order := r.Topological()
		s := Initial(r)
		e, i := must(NewEngine(r, s)), 0
		for b.Loop() {
			if i == len(order) {
				b.StopTimer()
				e, i = must(NewEngine(r, s)), 0
				b.StartTimer()
			}
			if _, err := e.Apply(Result{order[i], Succeeded{}}); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}

// The same fact by the definitions, which walk over the graph.
func BenchmarkReduceFact(b *testing.B) {
	benchEach(b, func(b *testing.B, _ Graph, r *Relation) {
		s := Initial(r)
		first := Result{r.Topological()[0], Succeeded{}}
		for b.Loop() {
			if _, _, err := Reduce(r, s, first); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A failure of the first node, which fails all the others; then taken back.
func BenchmarkEngineFailAll(b *testing.B) {
	benchEach(b, func(b *testing.B, _ Graph, r *Relation) {
		e := must(NewEngine(r, Initial(r)))
		first := Result{r.Topological()[0], NodeTimedOut{}}
		for b.Loop() {
			e.Begin()
			if _, err := e.Apply(first); err != nil {
				b.Fatal(err)
			}
			e.Rollback()
		}
	})
}

func BenchmarkRecover(b *testing.B) {
	benchEach(b, func(b *testing.B, _ Graph, r *Relation) {
		s := Initial(r)
		for b.Loop() {
			if _, _, err := Recover(r, s, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkNewEngine(b *testing.B) {
	benchEach(b, func(b *testing.B, _ Graph, r *Relation) {
		s := Initial(r)
		for b.Loop() {
			must(NewEngine(r, s))
		}
	})
}

func BenchmarkStateCodec(b *testing.B) {
	benchEach(b, func(b *testing.B, _ Graph, r *Relation) {
		s := Initial(r)
		var buf []byte
		for b.Loop() {
			buf = AppendState(buf[:0], s)
			must(DecodeState(buf))
		}
		b.SetBytes(int64(len(buf)))
	})
}
