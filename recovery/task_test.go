package recovery

import "testing"

// A task's projection respects its promise's deadline, whether the promise is given as stored or projected.
func TestTaskAt(t *testing.T) {
	w := newWorld(t)
	w.hold("a", 1000)
	task, stored := w.task("a"), w.promise("a")
	for now, want := range map[int64]string{
		ttl - 1: "task a#7 acquired v1 target=w pid=p ttl=50 lease=50",
		ttl:     "task a#7 pending v1 target=w retry=50",
		999:     "task a#7 pending v1 target=w retry=50",
		1000:    "task a#7 fulfilled v1 target=w",
	} {
		w.is(showTask(task.At(now, stored)), want)
		w.is(showTask(task.At(now, stored.At(now))), want)
	}
}
