package testkit

import (
	"testing/synctest"
	"time"
)

// Advance lets virtual time pass in a bubble of testing/synctest. It returns when every goroutine of the bubble waits
// for later times; it panics outside a bubble.
func Advance(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}
