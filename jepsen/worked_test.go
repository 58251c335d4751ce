package jepsen

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"perdure/internal/testkit"
)

// TestWorkedJournals has clusters write the worked journals of the specification, undisturbed and with workers and
// leaders killed.
func TestWorkedJournals(t *testing.T) {
	t.Parallel()
	for i, kill := range []string{"none", "worker", "leader"} {
		t.Run(kill, func(t *testing.T) {
			every := testkit.Choose(0, 12, 1)
			if kill == "none" {
				every = 1
			}
			c := sharedCluster(t)
			r, err := Worked(t.Context(), c, WorkedOptions{Kills: []string{kill}, Every: every, Seed: *flagSeed + uint64(i), Out: progress{t}})
			check(t, r, r.Violations, err)
		})
	}
}

// The comparison names the first entry that differs, and the rests are entries of their journals.
func TestCheckWorked(t *testing.T) {
	for _, name := range WorkedJournals {
		text, err := listings.ReadFile("testdata/worked/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, line := range strings.Split(string(text), "\n") {
			if words := strings.Fields(line); len(words) > 1 && words[0] == strconv.Itoa(len(lines)) {
				lines = append(lines, strings.Join(words[1:], " "))
			}
		}
		if wrong := CheckWorked(name, lines); wrong != "" || len(lines) < 6 {
			t.Errorf("%s, %d lines: %s", name, len(lines), wrong)
		}
		states := withStates(lines[:0:0])
		for _, line := range lines {
			states = append(states, line[:strings.LastIndex(line, " ")])
		}
		if got := withStates(states); !slices.Equal(got, lines) {
			t.Errorf("%s: the states are %q", name, got)
		}
		if wrong := CheckWorked(name, slices.Delete(slices.Clone(lines), 3, 4)); !strings.HasPrefix(wrong, "entry 3 is ") {
			t.Errorf("%s without entry 3: %s", name, wrong)
		}
		if wrong := CheckWorked(name, lines[:len(lines)-1]); !strings.Contains(wrong, "is missing: \"ExecutionCompleted") {
			t.Errorf("%s without its end: %s", name, wrong)
		}
		if wrong := CheckWorked(name, append(slices.Clone(lines), "ExecutionResumed Running")); !strings.Contains(wrong, "ends before it") {
			t.Errorf("%s with one more entry: %s", name, wrong)
		}
		for _, at := range workedRests[name] {
			if at.at >= len(lines)-1 {
				t.Errorf("%s rests at %d of %d entries", name, at.at, len(lines))
			}
		}
	}
}
