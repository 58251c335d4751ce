package jepsen

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// An entity that gets all signals, those of an origin in order and the scheduled ones in any, finds nothing
// wrong; and it notices a gap, a repetition, a changed order and a loss.
func TestTally(t *testing.T) {
	const n, every = 100, 10
	words := func() (ordered, scheduled []tallyWord) {
		for k := range n {
			if w, delay := wordOf("f0", k, every); delay > 0 {
				scheduled = append(scheduled, w)
			} else {
				ordered = append(ordered, w)
			}
		}
		return ordered, scheduled
	}
	for what, change := range map[string]func(ordered, scheduled []tallyWord) ([]tallyWord, []tallyWord){
		"":                                 func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return o, s },
		"signal 18 came, 17 was next":      func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return append(o[:17:17], o[18:]...), s },
		"signal 17 came, 18 was next":      func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return append(o[:18:18], o[17:]...), s },
		"signal 8 came, 7 was next":        func(o, s []tallyWord) ([]tallyWord, []tallyWord) { o[7], o[8] = o[8], o[7]; return o, s },
		"89 signals came, 90 were sent":    func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return o[:89], s },
		"91 signals came, 90 were sent":    func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return append(o, tallyWord{Origin: "f0", N: 90}), s },
		"scheduled signal 4 came twice":    func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return o, append(s, s[4]) },
		"scheduled signals [[0 4] [5 10]]": func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return o, append(s[:4:4], s[5:]...) },
		"x is no origin":                   func(o, s []tallyWord) ([]tallyWord, []tallyWord) { return append(o, tallyWord{Origin: "x"}), s },
	} {
		for seed := range uint64(10) {
			rng := rand.New(rand.NewPCG(seed, 1))
			ordered, scheduled := change(words())
			rng.Shuffle(len(scheduled), func(i, k int) { scheduled[i], scheduled[k] = scheduled[k], scheduled[i] })
			var got tally
			for len(ordered)+len(scheduled) > 0 {
				from := &ordered
				if len(ordered) == 0 || len(scheduled) > 0 && rng.IntN(3) == 0 {
					from = &scheduled
				}
				got.add((*from)[0])
				*from = (*from)[1:]
			}
			wrong := fmt.Sprint(got.check(map[string]int{"f0": n}, every))
			if what == "" && wrong != "[]" || !strings.Contains(wrong, what) {
				t.Errorf("seed %d, %q: found %s", seed, what, wrong)
			}
		}
	}
}
