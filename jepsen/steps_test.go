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
		ms, life := 0, 1
		for _, d := range w[0] {
			ms = 10*ms + int(d-'0')
		}
		if strings.HasSuffix(w[1], "'") {
			life = 2
		}
		out = append(out, StepNote{At: at(ms), Worker: strings.TrimSuffix(w[1], "'"), Life: life, Kind: NoteKind(w[2]), Execution: w[3],
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
		{"taken over a fault of a node", "10 w2 task a\n 20 w2 act a a:0\n 60 w1 task a", Holding{Tasks: 2}, "told so: false, it had begun: true"},
		{"taken from one that is told", "10 w2 task a\n 20 w2 lost a\n 60 w1 task a", Holding{Tasks: 2}, "told so: true, it had begun: false"},
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
	want := []StepRecord{{Execution: "a", Promise: "a:0", Runs: 3, Receipt: "7", RunAfterAck: 1, Changed: []string{"8"}},
		{Execution: "a", Promise: "a:1", Runs: 1, Receipt: "9"}}
	if !slices.EqualFunc(got, want, func(a, b StepRecord) bool {
		return a.Execution == b.Execution && a.Promise == b.Promise && a.Runs == b.Runs && a.Receipt == b.Receipt &&
			a.RunAfterAck == b.RunAfterAck && slices.Equal(a.Changed, b.Changed)
	}) {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// Books of several workers are read as one, in the order of time, without what others have started.
func TestStepBooks(t *testing.T) {
	dir := t.TempDir()
	c := &Cluster{}
	books := map[string]func(NoteKind, ...string) error{}
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
