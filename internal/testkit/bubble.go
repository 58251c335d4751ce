package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

// Bubble runs a test in virtual time, which passes while every goroutine of the test waits. Its goroutines must end
// with its clean-ups; those that a connection's end is about to reach have a minute.
func Bubble(t *testing.T, test func(t *testing.T, net *Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { Advance(time.Minute) })
		test(t, NewNetwork())
	})
}

// Advance lets virtual time pass in a bubble. It returns when every goroutine of the bubble waits for later times; it
// panics outside a bubble.
func Advance(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}
