// Package testkit owns what the tests of several packages share: how many of them run at a time, how many cases
// they try, and how often garbage is collected.
//
// It promises that the user has the last word: -parallel, -rapid.checks and GOGC hold when they are given. No package
// but tests imports it.
package testkit

import (
	"flag"
	"strconv"
)

// WaitingTests lets n tests that have called t.Parallel run at once, unless the flag -parallel says otherwise. It is
// for packages whose parallel tests wait most of the time: by default only as many run as there are cores. Call it in
// TestMain, before m.Run.
func WaitingTests(n int) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if set {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // TestMain has no test to fail
	}
}
