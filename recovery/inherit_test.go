package recovery

import "testing"

func TestInheritLease(t *testing.T) {
	w := newWorld(t)
	w.hold("a", 1000) // at 0, for 50
	w.hold("short", 45)
	w.make("waits", true, 1000)
	for _, c := range []struct {
		what        string
		id          string
		incarnation uint64
		now, since  int64
		want        bool
		shows       string
	}{
		{"a moment ago", "a", 7, 30, 40, true, "task a#7 acquired v1 target=w pid=p ttl=50 lease=90"},
		{"the leader's clock is behind the machine's", "a", 7, 60, 20, true, "task a#7 acquired v1 target=w pid=p ttl=50 lease=110"},
		{"it would end earlier", "a", 7, 30, 20, false, "task a#7 acquired v1 target=w pid=p ttl=50 lease=110"},
		{"another incarnation of the id", "a", 6, 60, 90, false, "task a#7 acquired v1 target=w pid=p ttl=50 lease=110"},
		{"longer without a leader than the lease", "a", 0, 60, 5000, true, "task a#7 acquired v1 target=w pid=p ttl=50 lease=5050"},
		{"its promise's deadline has come", "short", 7, 45, 46, false, "task short#7 acquired v1 target=w pid=p ttl=50 lease=50"},
		{"not acquired", "waits", 7, 40, 50, false, ""},
		{"missing", "none", 0, 40, 50, false, ""},
	} {
		if got := InheritLease(w.s, c.now, Ref{c.id, c.incarnation}, c.since); got != c.want {
			t.Errorf("%s: extended %v, want %v", c.what, got, c.want)
		}
		w.sound(c.now)
		if c.shows != "" {
			w.is(showTask(w.task(c.id)), c.shows)
		}
	}
	w.hold("over", 1000)
	if InheritLease(w.s, 50, Ref{"over", 7}, 60) {
		t.Error("a lease that had ended by the machine's clock was extended")
	}
}
