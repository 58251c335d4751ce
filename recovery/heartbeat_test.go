package recovery

import (
	"slices"
	"testing"
)

func TestHeartbeat(t *testing.T) {
	w := newWorld(t)
	a, b := w.hold("a", 1000), w.hold("b", 1000)
	short := w.hold("short", 30)
	_, err := CreateAcquired(w.s, 0, CreateRequest{ID: "other", Incarnation: 7, TimeoutAt: 1000, Target: "w"}, "q", 500)
	w.ok(0, err)
	w.make("waits", true, 1000)

	refs := []TaskRef{
		b,
		{"missing", 0, 1},
		{"", 0, 1},
		{"other", 7, 1}, // held by another process
		{"waits", 7, 0}, // not acquired
		{"a", 7, 0},     // stale
		{"a", 6, 1},     // another incarnation
		{"a", 0, 1},
		short,
	}
	got := Heartbeat(w.s, 40, "p", refs)
	w.sound(40)
	if want := []TaskRef{b, a}; !slices.Equal(got, want) {
		t.Errorf("extended %v, want %v", got, want)
	}
	w.is(showTask(w.task("a")), "task a#7 acquired v1 target=w pid=p ttl=50 lease=90")
	w.is(showTask(w.task("b")), "task b#7 acquired v1 target=w pid=p ttl=50 lease=90")
	w.is(showTask(w.task("other")), "task other#7 acquired v1 target=w pid=q ttl=500 lease=500")
	w.is(showTask(w.task("short")), "task short#7 acquired v1 target=w pid=p ttl=50 lease=50")

	if got := Heartbeat(w.s, 90, "p", []TaskRef{a}); len(got) != 0 {
		t.Errorf("a lease that has run out was extended: %v", got)
	}
	if got := Heartbeat(w.s, 50, "", nil); len(got) != 0 {
		t.Errorf("extended %v", got)
	}
}
