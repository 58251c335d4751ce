package retention

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"perdure/fsm/query"
)

func TestPolicy(t *testing.T) {
	p, err := ParsePolicy([]string{"30d", "a=7d", "a/f=forever", "b=forever", "b/g=10m"})
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		ns, function string
		age          time.Duration
		limited      bool
	}{
		{"x", "f", 30 * day, true}, {"a", "g", 7 * day, true}, {"a", "", 7 * day, true}, {"a", "f", 0, false},
		{"b", "f", 0, false}, {"b", "g", 10 * time.Minute, true}, {"b", "", 0, false},
	} {
		if age, limited := p.Of(c.ns, c.function); limited != c.limited || limited && age != c.age {
			t.Errorf("%s/%s: %v, %t", c.ns, c.function, age, limited)
		}
	}
	if least, ok := p.least("b"); !ok || least != 10*time.Minute {
		t.Errorf("least of b: %v, %t", least, ok)
	}
	if least, ok := p.least("a"); !ok || least != 7*day {
		t.Errorf("least of a: %v, %t", least, ok)
	}
	for _, rules := range [][]string{nil, {Forever}, {"a=forever"}} {
		if p, err := ParsePolicy(rules); err != nil || !p.keepsAll() {
			t.Errorf("%q: %+v, %v", rules, p, err)
		}
	}
	if _, limited := (Policy{}).Of("a", "f"); limited || !(Policy{}).keepsAll() {
		t.Error("the zero policy purges")
	}
	for _, rules := range [][]string{{"9m"}, {"0d"}, {"x"}, {"=7d"}, {"a/=7d"}, {"a=7d", "a=8d"}, {"7d", "8d"}, {"a="}, {Forever, "7d"}, {"7d", Forever}, {"7d", "7d"}, {KeepAll, "keep 5"}, {"a=keep all", "a=keep 5"}, {"-1d"},
		{"keep 0"}, {"keep -1"}, {"keep"}, {"keep 1000001"}, {"keep x"}, {"a=keep 1", "a=keep 2"}, {"keep 1", "keep 2"}, {"=keep 1"}} {
		if p, err := ParsePolicy(rules); err == nil {
			t.Errorf("%q is read as %+v", rules, p)
		}
	}
}

// Ages and counts are found each by the most specific rule of their sort, and written as they are read.
func TestPolicyCounts(t *testing.T) {
	rules := []string{"30d", "keep 1000", "a=7d", "a/f=forever", "a/f=keep 10", "a/g=keep all"}
	p, err := ParsePolicy(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ns, function string
		count        int
		limited      bool
	}{{"x", "f", 1000, true}, {"a", "f", 10, true}, {"a", "g", 0, false}, {"a", "h", 1000, true}} {
		if n, limited := p.Count(c.ns, c.function); n != c.count || limited != c.limited {
			t.Errorf("%s/%s: %d, %t", c.ns, c.function, n, limited)
		}
	}
	again, err := ParsePolicy(p.Rules())
	if err != nil || !slices.Equal(again.Rules(), p.Rules()) || !slices.Equal(p.Rules(), rules) {
		t.Errorf("%q is written %q and %q, %v", rules, p.Rules(), again.Rules(), err)
	}
	if p, err := ParsePolicy([]string{"keep 5"}); err != nil || p.keepsAll() || !slices.Equal(p.Rules(), []string{Forever, "keep 5"}) {
		t.Errorf("a count alone: %q, %v", p.Rules(), err)
	}
}

// Whatever the executions are and in however many passes, what is over is what sorting says.
func TestNewest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, err := ParsePolicy([]string{"keep 6", "a/f=keep 2", "b=keep all", "b/g=keep 1"})
		if err != nil {
			rt.Fatal(err)
		}
		var all []query.Ended
		for range rapid.IntRange(0, 60).Draw(rt, "executions") {
			all = append(all, query.Ended{Namespace: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "ns"),
				Function: rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "function"), EndedMS: rapid.Int64Range(1, 40).Draw(rt, "ended")})
		}
		partitions, most := rapid.IntRange(1, 4).Draw(rt, "partitions"), rapid.IntRange(6, 20).Draw(rt, "held")
		got, from := map[string]int64{}, ""
		for pass := 0; ; pass++ {
			n := newNewest(p, partitions, from)
			n.most = most
			for _, e := range all {
				n.see(e)
			}
			for scope := range n.ends {
				ns, function, _ := strings.Cut(scope, "/")
				if end, ok := n.before(ns, function); ok {
					got[scope] = end
				}
			}
			if from = n.until; from == "" {
				break
			}
			if pass > 10 {
				rt.Fatal("the passes do not end")
			}
		}
		want := map[string]int64{}
		for scope, count := range map[string]int{"a/f": 2, "a/g": 6, "b/g": 1, "c/f": 6, "c/g": 6} {
			var ends []int64
			for _, e := range all {
				if e.Namespace+"/"+e.Function == scope {
					ends = append(ends, -e.EndedMS)
				}
			}
			slices.Sort(ends)
			if keep := (count + partitions - 1) / partitions; len(ends) >= keep {
				want[scope] = -ends[keep-1]
			}
		}
		if !maps.Equal(got, want) {
			rt.Fatalf("kept from %v, want %v", got, want)
		}
	})
}
