package recovery

import "testing"

func TestResume(t *testing.T) {
	type step struct {
		now  int64
		by   string
		want Resumed
		task string
		exec string
	}
	for name, tc := range map[string]struct {
		before func(w *world)
		steps  []step
	}{
		"suspended": {
			before: func(w *world) { w.sleep("a", 1000, "x") },
			steps: []step{
				{3, "x", ResumeWoken, "task a#7 pending v1 target=w retry=103 resumes=x", "execute a#7 v1 to w"},
				{4, "m", ResumeBuffered, "task a#7 pending v1 target=w retry=103 resumes=m,x", ""},
				{5, "x", ResumeBuffered, "task a#7 pending v1 target=w retry=103 resumes=m,x", ""},
				{6, "z", ResumeBuffered, "task a#7 pending v1 target=w retry=103 resumes=m,x,z", ""},
			},
		},
		"acquired": {
			before: func(w *world) { w.hold("a", 1000) },
			steps:  []step{{3, "x", ResumeBuffered, "task a#7 acquired v1 target=w pid=p ttl=50 lease=50 resumes=x", ""}},
		},
		"acquired, lease run out": {
			before: func(w *world) { w.hold("a", 1000) },
			steps:  []step{{60, "x", ResumeBuffered, "task a#7 acquired v1 target=w pid=p ttl=50 lease=50 resumes=x", ""}},
		},
		"pending": {
			before: func(w *world) { w.make("a", true, 1000) },
			steps:  []step{{3, "x", ResumeBuffered, "task a#7 pending v0 target=w retry=100 resumes=x", ""}},
		},
		"halted": {
			before: func(w *world) {
				w.hold("a", 1000)
				_, err := Halt(w.s, 1, Ref{ID: "a"})
				w.ok(1, err)
			},
			steps: []step{{3, "x", ResumeBuffered, "task a#7 halted v1 target=w resumes=x", ""}},
		},
		"fulfilled": {
			before: func(w *world) {
				w.hold("a", 1000)
				_, err := Settle(w.s, 1, Ref{ID: "a"}, PromiseResolved, nil)
				w.ok(1, err)
			},
			steps: []step{{3, "x", ResumeSkipped, "task a#7 fulfilled v1 target=w", ""}},
		},
		"past its own deadline": {
			before: func(w *world) { w.sleep("a", 20, "x") },
			steps:  []step{{20, "x", ResumeSkipped, "task a#7 suspended v1 target=w", ""}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("x", false, 1000)
			tc.before(w)
			for _, s := range tc.steps {
				got, fx := Resume(w.s, s.now, "a", s.by, retry)
				if got != s.want || got.String() != [...]string{"skipped", "buffered", "woken"}[s.want] {
					t.Errorf("by %s: %s, want %s", s.by, got, s.want)
				}
				w.is(showTask(w.task("a")), s.task)
				if s.exec == "" {
					w.effects(fx)
				} else {
					w.effects(fx, s.exec)
				}
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		w := newWorld(t)
		w.make("x", false, 1000)
		for _, id := range []string{"x", "missing"} {
			if got, fx := Resume(w.s, 3, id, "y", retry); got != ResumeSkipped || !fx.Empty() {
				t.Errorf("%s: %s, %v", id, got, fx)
			}
		}
	})
}

// A shared list of resumes must survive what is done to the task later.
func TestResumeDoesNotWriteIntoLentSlices(t *testing.T) {
	w := newWorld(t)
	w.make("a", true, 1000)
	for _, by := range []string{"m", "z"} {
		Resume(w.s, 3, "a", by, retry)
	}
	shared := w.task("a")
	shared.Resumes = shared.Resumes[:1:2] // capacity for one more
	w.s.PutTask(shared)
	Resume(w.s, 4, "a", "b", retry)
	if shared.Resumes[0] != "m" || shared.Resumes[:2][1] != "z" {
		t.Errorf("the shared slice is %q now", shared.Resumes[:2])
	}
}
