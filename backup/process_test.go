package backup

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

// endedProcess returns a process of this machine that has ended.
func endedProcess(t *testing.T) process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	p := thisProcess()
	p.PID = cmd.Process.Pid
	return p
}

// TestResumeAfterKill: the partial of a process that was killed is continued at once, on the same machine alone. That of
// one which runs, or may run, is left to it.
func TestResumeAfterKill(t *testing.T) {
	killed := endedProcess(t)
	elsewhere := killed
	elsewhere.Host = "elsewhere"
	for _, test := range []struct {
		name    string
		process process
		resumed bool
	}{{"killed", killed, true}, {"of another machine", elsewhere, false}, {"it runs", thisProcess(), false}, {"of a version that did not say", process{}, false}} {
		s, c := memFolder(t), newCluster(1, 2)
		if _, err := Create(t.Context(), c, mortalStore(s, 25), optionsAt(t, start)); !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		list, err := readPartials(t.Context(), s)
		if err != nil || len(list) != 1 || list[0].Process != thisProcess() {
			t.Fatalf("partials %+v, error %v", list, err)
		}
		list[0].Process = test.process
		if err := putPartial(t.Context(), s, list[0]); err != nil {
			t.Fatal(err)
		}
		if shown, err := Partials(t.Context(), s); err != nil || shown[0].Ended != test.resumed {
			t.Fatalf("%s: listed %+v, error %v", test.name, shown, err)
		}
		r, err := Create(t.Context(), c, s, optionsAt(t, start.Add(time.Second)))
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if resumed := r.Progress.Resumed != ""; resumed != test.resumed || resumed != (r.Cut == 1) {
			t.Fatalf("%s: cut %d, resumed %q", test.name, r.Cut, r.Progress.Resumed)
		}
	}
}
