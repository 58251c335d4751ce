package retention

import (
	"testing"
	"time"
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
	for _, rules := range [][]string{{"9m"}, {"0d"}, {"x"}, {"=7d"}, {"a/=7d"}, {"a=7d", "a=8d"}, {"7d", "8d"}, {"a="}, {"-1d"}} {
		if p, err := ParsePolicy(rules); err == nil {
			t.Errorf("%q is read as %+v", rules, p)
		}
	}
}
