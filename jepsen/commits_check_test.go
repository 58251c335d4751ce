package jepsen

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCommitChecker(t *testing.T) {
	good := []Write{
		{Name: "a", Fate: Acked, Found: 1}, {Name: "b", Fate: Open, Found: 0}, {Name: "c", Fate: Open, Found: 1},
		{Name: "d", Fate: NotDone, Found: 0}, {Name: "e", Box: "box", Fate: Acked, Found: 1},
	}
	if v := CheckCommits(good); !v.OK() || v.Acked != 2 || v.Open != 2 || v.NotDone != 1 {
		t.Fatalf("a good load: %+v", v)
	}
	for _, c := range []struct {
		name  string
		plant Write
		what  string
	}{
		{"a lost write", Write{Name: "x", Fate: Acked, Found: 0}, "lost: x "},
		{"a lost signal", Write{Name: "x", Box: "box", Fate: Acked, Found: 0}, "lost: box: signal x "},
		{"a doubled effect", Write{Name: "x", Box: "box", Fate: Acked, Found: 2}, "doubled: box: signal x "},
		{"a doubled effect without an answer", Write{Name: "x", Box: "box", Fate: Open, Found: 2}, "doubled: box: signal x "},
		{"applied but denied", Write{Name: "x", Fate: NotDone, Found: 1}, "applied although"},
		{"never read back", Write{Name: "x", Fate: Acked, Found: -1}, "1 writes were not read back"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := CheckCommits(slices.Insert(slices.Clone(good), 2, c.plant))
			if all := v.Violations(); v.OK() || len(all) != 1 || !strings.HasPrefix(all[0], c.what) {
				t.Errorf("ok is %v, violations %q, expected one that begins %q", v.OK(), all, c.what)
			}
		})
	}
}

func TestFailoverFigures(t *testing.T) {
	var writes []Write
	add := func(called, answered float64, fate WriteFate) {
		writes = append(writes, Write{Fate: fate, Called: seconds(called)[0], Answered: seconds(answered)[0]})
	}
	for i := range 20 { // 10 a second until 2 s
		add(float64(i)/10, float64(i)/10+0.05, Acked)
	}
	add(1.99, 3.5, Acked) // under way when the fault came at 2 s
	add(2.00, 2.1, Open)  // not an acknowledgement
	for i := range 30 {
		add(3.5+float64(i)/10, 3.55+float64(i)/10, Acked)
	}
	var r FailoverRound
	r.measure(writes, 2*time.Second, 5*time.Second, 6*time.Second)
	near := func(what string, got time.Duration, want float64) {
		if d := got - seconds(want)[0]; d.Abs() > 2*time.Millisecond {
			t.Errorf("%s is %v, expected %v s", what, got, want)
		}
	}
	near("the gap", r.Gap, 1.55)
	near("the gap before", r.Before, 0.1)
	near("the gap after healing", r.SecondGap, 0.1)
	near("the slowest write", r.Slowest, 1.51)
	near("the slow time", r.Slow, 1.5)
	if r.Rate < 10 || r.Rate > 10.5 {
		t.Errorf("rate %v", r.Rate)
	}
}
