package testkit

import (
	"flag"
	"strconv"
	"testing"
)

// Checks lets rapid try n cases in this test, unless the flag -rapid.checks says otherwise: for tests of which rapid's
// hundred take too long for every run.
func Checks(t *testing.T, n int) {
	t.Helper()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if set {
		return
	}
	f := flag.Lookup("rapid.checks")
	if f == nil {
		t.Fatal("the test does not use rapid")
	}
	before := f.Value.String()
	// Not by flag.Set, which would count as said on the command line.
	if err := f.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Value.Set(before); err != nil {
			t.Error(err)
		}
	})
}
