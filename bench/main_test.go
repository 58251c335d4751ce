package main

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"perdure/bench/role"
	"perdure/internal/testkit"
)

func TestMain(m *testing.M) {
	if role.Asked(os.Args) {
		os.Exit(role.Main(os.Args[2:]))
	}
	flag.Parse()
	testkit.Exit(m.Run(), goleak.IgnoreTopFunction("perdure/bench/cluster.spawning"))
}

// TestWrongUsage: what cannot be measured is refused before anything is built or started.
func TestWrongUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--workloads none", `no workload is called "none"`},
		{"--concurrency 1,x", `"x" is no number from 1`},
		{"--payload 4GiB", `"4GiB" is no number from 1`},
		{"--payload 0", `"0" is no number from 1`},
		{"more", `unknown argument "more"`},
		{"--sideways", "flag provided but not defined"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &out, &errs); code != exitUsage || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: exit code %d, %s", c.args, code, errs.String())
		}
	}
}

// TestCells: all combinations, but those whose bytes under way would measure the bounds of memory.
func TestCells(t *testing.T) {
	s := settings{workloads: "B,journal", nodes: "1,3", concurrency: "64,1024", payload: "64,256KiB"}
	cells, skipped, err := s.cells()
	if err != nil || len(cells) != 10 || len(skipped) != 6 {
		t.Errorf("%d cells, %d left out, %v", len(cells), len(skipped), err)
	}
	if got, err := numbers("x", "7,2KiB,1MiB"); err != nil || !slices.Equal(got, []int{7, 2048, 1 << 20}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWithoutSDK: on a machine without Resonate's SDK one line says so, and nothing else is built or started for it.
func TestWithoutSDK(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"--workloads", "resonate-run,resonate-rpc", "--nodes", "1,3"}, &out, &errs)
	if line := errs.String(); code != exitOK || out.Len() > 0 || strings.Count(line, "\n") != 1 || !strings.Contains(line, "left out, 4 measurements") {
		t.Errorf("exit code %d, %q, %q", code, out.String(), line)
	}
}

var flagPlanted = flag.Bool("bench.planted", false, "see whether the short comparison finds a planted slow-down")

// TestFindsPlanted: the short comparison finds that commands cost a tenth more. It has three attempts, since another
// process that takes the cores widens the spread.
func TestFindsPlanted(t *testing.T) {
	if !*flagPlanted {
		t.Skip("it takes minutes of a machine that does nothing else; TestJudge decides on given ratios")
	}
	for range 3 {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"--module", "..", "--dir", t.TempDir(), "--plant", "10", "--short"}, &out, &errs)
		if code == exitRegression {
			return
		}
		t.Logf("exit code %d\n%s\n%s", code, out.String(), errs.String())
	}
	t.Error("not found")
}
