package quota

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	q, err := Parse([]string{"a=open:10", "bytes:1536MiB", "starts:5/s", "*=open:3", "b=starts:1/s"})
	if err != nil {
		t.Fatal(err)
	}
	for ns, want := range map[string]Limits{"a": {10, 1536 << 20, 5}, "b": {Starts: 1}, "c": {Open: 3}} {
		if got := q.Of(ns); got != want {
			t.Errorf("%s: %+v, want %+v", ns, got, want)
		}
	}
	if got, want := q.Rules(), []string{"*=open:3", "a=open:10,bytes:1536MiB,starts:5/s", "b=starts:1/s"}; !slices.Equal(got, want) {
		t.Errorf("written %q, want %q", got, want)
	}
	if q, err := Parse(nil); err != nil || !q.None() || q.Of("a") != (Limits{}) {
		t.Errorf("without settings: %+v, %v", q, err)
	}
	for _, bad := range [][]string{{"open:1"}, {"=open:1"}, {"a=open:0"}, {"a=open:x"}, {"a=bytes:1.5GiB"}, {"a=bytes:0"}, {"a=bytes:99999999TiB"},
		{"a=starts:5"}, {"a=starts:0/s"}, {"a=seats:1"}, {"a=open:1", "a=open:2"}, {"a="}, {"a"}} {
		if q, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, q)
		}
	}
}
