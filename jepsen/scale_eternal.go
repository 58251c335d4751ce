package jepsen

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"perdure/durable"
)

const (
	scaleEternalName = "jepsen-scale-eternal"
	// eternalTurns is how many turns of the loop an incarnation makes.
	eternalTurns = 100
	// Bounds: the last tenth has at least half the rate of the second one, and the data take at most 1.3
	// times what they took after half of the turns, and this much more, which logs that are not cut yet may
	// take.
	eternalSlack = 128 << 20
)

// eternalLoop is the input of an incarnation of the loop.
type eternalLoop struct {
	// Done turns of N were made before. Marks are the Unix times in milliseconds at which each tenth was
	// made, with that of the beginning first.
	Done, N int
	Marks   []int64
}

// eternalFunction is a loop that runs "for ever": each turn is a timer and a step, and after eternalTurns turns it
// continues as new.
var eternalFunction = durable.NewFunction(scaleEternalName, func(ctx durable.Context, in eternalLoop) ([]int64, error) {
	for range eternalTurns {
		if in.Done*10 >= in.N*len(in.Marks) {
			now, err := durable.Now(ctx)
			if err != nil {
				return nil, err
			}
			in.Marks = append(in.Marks, now.UnixMilli())
		}
		if in.Done == in.N {
			return in.Marks, nil
		}
		if err := durable.Sleep(ctx, time.Millisecond); err != nil {
			return nil, err
		}
		n, err := durable.Run(ctx, "turn", func(context.Context) (int, error) { return in.Done + 1, nil })
		if err != nil {
			return nil, err
		}
		in.Done = n
	}
	return nil, durable.ContinueAsNew(ctx, in)
})

// diskAt is how many bytes the nodes' data took at a time.
type diskAt struct {
	ms    int64
	bytes int64
}

// eternal runs loops that continue as new, one in each partition's reach, and watches their rate and the disk.
func (r *scaleRun) eternal(ctx context.Context) error {
	const loops = 16
	if err := r.c.waitLevel(ctx); err != nil {
		return err
	}
	var handles []*durable.Handle[[]int64]
	for i := range loops {
		h, err := eternalFunction.Start(ctx, r.cl, fmt.Sprintf("scale-%x-eternal-%d", r.o.Seed, i), eternalLoop{N: r.o.N / loops})
		if err != nil {
			return err
		}
		handles = append(handles, h)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	disk := make(chan []diskAt, 1)
	go func() {
		var all []diskAt
		for watching.Err() == nil {
			all = append(all, diskAt{time.Now().UnixMilli(), r.dataBytes()})
			_ = pause(watching, time.Second)
		}
		disk <- append(all, diskAt{time.Now().UnixMilli(), r.dataBytes()})
	}()
	ending, cancel := context.WithTimeout(ctx, r.o.Bound)
	defer cancel()
	marks := make([]int64, 11) // of all loops together: when the last of them had made each tenth
	for i, h := range handles {
		own, err := h.Result(ending)
		if err != nil || len(own) != len(marks) {
			r.violate("loop %d ended with %d marks: %v", i, len(own), err)
			stop()
			<-disk
			return err
		}
		for k, at := range own {
			marks[k] = max(marks[k], at)
		}
	}
	r.report.Took = time.Since(r.began)
	stop()
	sizes := <-disk
	pace := ScalePace{What: "turns of loops", N: r.o.N, Rate: float64(r.o.N) * 1000 / float64(max(marks[10]-marks[0], 1))}
	var held []int64
	for k := 1; k < len(marks); k++ {
		pace.Rates = append(pace.Rates, float64(r.o.N)/10*1000/float64(max(marks[k]-marks[k-1], 1)))
		at, _ := slices.BinarySearchFunc(sizes, marks[k], func(d diskAt, ms int64) int { return int(d.ms - ms) })
		held = append(held, sizes[min(at, len(sizes)-1)].bytes)
	}
	r.report.Paces = append(r.report.Paces, pace)
	text := ""
	for _, bytes := range held {
		text += fmt.Sprintf(" %d", bytes>>20)
	}
	r.note("data of all nodes at the end of each tenth, in MiB:%s", text)
	if pace.Rates[9] < pace.Rates[1]/2 {
		r.violate("the last tenth made %.0f turns/s, the second %.0f", pace.Rates[9], pace.Rates[1])
	}
	if held[9] > held[4]+held[4]*3/10+eternalSlack {
		r.violate("the data take %d MiB at the end, %d MiB after half of the turns", held[9]>>20, held[4]>>20)
	}
	for i := range loops {
		e, err := r.cl.Describe(ctx, fmt.Sprintf("scale-%x-eternal-%d", r.o.Seed, i))
		switch {
		case err != nil:
			return err
		case int(e.GetFormerIncarnations()) != r.o.N/loops/eternalTurns:
			r.violate("loop %d had %d incarnations of %d turns before its last", i, e.GetFormerIncarnations(), eternalTurns)
		}
	}
	return nil
}

// dataBytes is the size of all nodes' data. Files that vanish meanwhile do not count.
func (r *scaleRun) dataBytes() (sum int64) {
	for _, n := range r.c.nodes {
		_ = filepath.WalkDir(n.DataDir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil //nolint:nilerr // it has vanished
			}
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
			return nil
		})
	}
	return sum
}
