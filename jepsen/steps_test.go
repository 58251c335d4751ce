package jepsen

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// at is a time of a planted history.
func at(ms int) time.Time { return time.Unix(1000, int64(ms)*1e6) }

// notesOf makes notes of lines "ms worker kind execution [promise [proof]]"; a worker's second process is w'.
func notesOf(lines string) []StepNote {
	var out []StepNote
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		w := append(strings.Fields(line), "", "")
		ms, number := 0, 1
		for _, d := range w[0] {
			ms = 10*ms + int(d-'0')
		}
		if strings.HasSuffix(w[1], "'") {
			number = 2
		}
		out = append(out, StepNote{At: at(ms), Worker: strings.TrimSuffix(w[1], "'"), PID: number, Kind: NoteKind(w[2]), Execution: w[3],
			Promise: w[4], Proof: w[5]})
	}
	return out
}

func TestCheckHolding(t *testing.T) {
	outages := []Outage{{Worker: "w1", From: at(100), To: at(200)}}
	breaks := []time.Time{at(50)}
	for _, c := range []struct {
		name, notes string
		want        Holding
		taken       string
	}{
		{"held across a fault of a node", "10 w1 task a\n 20 w1 act a a:0\n 60 w1 ack a a:0 1", Holding{Tasks: 1, Kept: 1}, ""},
		{"counted once", "10 w1 task a\n 60 w1 ack a a:0 1\n 70 w1 act a a:1", Holding{Tasks: 1, Kept: 1}, ""},
		{"over before it", "10 w1 task a\n 20 w1 act a a:0\n 30 w1 ack a a:0 1", Holding{Tasks: 1}, ""},
		{"the holder was killed", "10 w1 task a\n 20 w1 act a a:0\n 150 w2 task a", Holding{Tasks: 2, Moved: 1}, ""},
		{"and it moved long after", "10 w1 task a\n 900 w2 task a", Holding{Tasks: 2, Moved: 1}, ""},
		{"to the same worker's next process", "10 w1 task a\n 300 w1' task a", Holding{Tasks: 2, Moved: 1}, ""},
		{"given back", "10 w2 task a\n 20 w2 back a\n 30 w1 task a", Holding{Tasks: 2, GivenBack: 1}, ""},
		{"come again", "10 w1 task a\n 60 w1 task a", Holding{Tasks: 2, Again: 1}, ""},
		{"taken over a fault of a node", "10 w2 task a\n 20 w2 act a a:0\n 60 w1 task a", Holding{Tasks: 2}, "reported as lost: false, begun: true"},
		{"taken from one that the cluster reported", "10 w2 task a\n 20 w2 lost a\n 60 w1 task a", Holding{Tasks: 2}, "reported as lost: true, begun: false"},
		{"taken before the holder was killed", "10 w1 task a\n 60 w2 task a", Holding{Tasks: 2}, "a came to w2"},
		{"taken from the next process", "300 w1' task a\n 400 w2 task a", Holding{Tasks: 2}, "a came to w2"},
		{"taken back from the next holder", "10 w1 task a\n 150 w2 task a\n 250 w1' task a", Holding{Tasks: 3, Moved: 1}, "a came to w1 (process 2)"},
		{"another execution", "10 w1 task a\n 20 w2 task b\n 60 w2 ack b b:0 1", Holding{Tasks: 2, Kept: 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := CheckHolding(notesOf(c.notes), outages, breaks)
			taken := strings.Join(got.Taken, "\n")
			got.Taken = nil
			if got.Tasks != c.want.Tasks || got.Kept != c.want.Kept || got.Moved != c.want.Moved || got.GivenBack != c.want.GivenBack || got.Again != c.want.Again {
				t.Errorf("%+v, expected %+v", got, c.want)
			}
			if (taken == "") != (c.taken == "") || !strings.Contains(taken, c.taken) {
				t.Errorf("taken %q, expected %q", taken, c.taken)
			}
		})
	}
}

func TestStepRecords(t *testing.T) {
	got := StepRecords(notesOf(`
		1 w1 task a
		2 w1 act a a:0
		3 w2 act a a:0
		4 w2 ack a a:0 7
		5 w1 act a a:0
		6 w2 act a a:1
		7 w1 ack a a:0 8
		8 w2 ack a a:1 9
		9 w3 ack a a:0 7`))
	want := []StepRecord{{Execution: "a", Promise: "a:0", Runs: 3, Receipt: "7", RunAfterAck: 1,
		Late: []string{"w1 (process 1) acted at 00:16:40.005, 1ms after w2 (process 1) had its acknowledgement"}, Changed: []string{"8"}},
		{Execution: "a", Promise: "a:1", Runs: 1, Receipt: "9"}}
	if !slices.EqualFunc(got, want, func(a, b StepRecord) bool {
		return a.Execution == b.Execution && a.Promise == b.Promise && a.Runs == b.Runs && a.Receipt == b.Receipt &&
			a.RunAfterAck == b.RunAfterAck && len(a.Late) == len(b.Late) && slices.Equal(a.Changed, b.Changed)
	}) {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// A step that acts after its acknowledgement is found for every worker, also one that was paused. One that
// acts at the moment of the acknowledgement, or before it, is not.
func TestActsAfterAcknowledgement(t *testing.T) {
	for _, c := range []struct {
		name, notes string
		late        int
	}{
		{"once", "1 w1 act a a:0\n 2 w1 ack a a:0 7", 0},
		{"again before it", "1 w1 act a a:0\n 2 w2 act a a:0\n 3 w2 ack a a:0 7", 0},
		{"in the same moment", "1 w1 act a a:0\n 2 w1 ack a a:0 7\n 2 w2 act a a:0", 0},
		{"another worker", "1 w1 act a a:0\n 2 w1 ack a a:0 7\n 3 w2 act a a:0", 1},
		{"the same worker", "1 w1 act a a:0\n 2 w1 ack a a:0 7\n 3 w1 act a a:0", 1},
		{"its next process", "1 w1 act a a:0\n 2 w1 ack a a:0 7\n 3 w1' act a a:0", 1},
		{"one that stood still before its first act", "1 w1 task a\n 5000 w2 act a a:0\n 5001 w2 ack a a:0 7\n 9000 w1 act a a:0", 1},
		{"replayed acknowledgements do not hide it", "1 w1 act a a:0\n 2 w1 ack a a:0 7\n 3 w2 act a a:0\n 4 w2 ack a a:0 7\n 5 w1 act a a:0", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := StepRecords(notesOf(c.notes))
			if len(got) != 1 || got[0].RunAfterAck != c.late || len(got[0].Late) != c.late {
				t.Errorf("%+v, expected %d acts after the acknowledgement", got, c.late)
			}
			v := CheckExecutions([]Execution{{ID: "a", Found: "a|7", Done: -1, Acked: -1}}, got, 1)
			if v.OK() != (c.late == 0) {
				t.Errorf("violations: %q", v.Violations())
			}
		})
	}
}

func TestSleeps(t *testing.T) {
	sleeps := SleepRecords(notesOf(`
		10 w1 rest a 30
		20 w2 rest a 30
		45 w2 wake a
		90 w1 wake a
		10 w1 rest b 30
		39 w1 wake b
		50 w1 rest c 30`))
	var v ExecutionVerdict
	v.CheckSleeps(sleeps, time.Millisecond)
	if len(v.Early) != 0 {
		t.Errorf("with a millisecond of slack: %+v", v)
	}
	v = ExecutionVerdict{}
	v.CheckSleeps(sleeps, 0)
	if len(sleeps) != 3 || v.Slept != 2 || v.Overslept.Max != 5*time.Millisecond || len(v.Early) != 1 || v.Early[0] != "b slept 29ms of 30ms" {
		t.Errorf("%+v: %+v", sleeps, v)
	}
}

// Books of several workers are read as one, in the order of time, without what others have started.
func TestStepBooks(t *testing.T) {
	dir := t.TempDir()
	c := &Cluster{}
	books := map[string]notes{}
	for _, name := range []string{"w1", "w2", "idle"} {
		w := &Worker{Steps: stepsBook(filepath.Join(dir, name+".book"))}
		c.workers = append(c.workers, w)
		books[name] = (&book{name: w.Steps}).noteStep(name)
	}
	for _, write := range []error{
		books["w1"](NoteTask, "x-1"), books["w2"](NoteTask, "y-1"), books["w2"](NoteAct, "x-2", "x-2:0"), books["w1"](NoteAck, "x-1", "x-1:0", "p"),
	} {
		if write != nil {
			t.Fatal(write)
		}
	}
	notes, err := c.Steps("x-")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range notes {
		got = append(got, strings.Join([]string{n.Worker, string(n.Kind), n.Execution, n.Promise, n.Proof}, " "))
	}
	if want := []string{"w1 task x-1  ", "w2 act x-2 x-2:0 ", "w1 ack x-1 x-1:0 p"}; !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
	for _, line := range []string{"", "1\tw\t2\ttask", "x\tw\t2\ttask\ta", "1\tw\ty\ttask\ta", "1\tw\t2\tack\ta\tb\tc\td"} {
		if n, err := parseNote(line); err == nil {
			t.Errorf("%q is read as %+v", line, n)
		}
	}
}
