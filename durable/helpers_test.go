package durable

import "runtime"

// goexit ends the goroutine, as t.FailNow does in a step.
func goexit() { runtime.Goexit() }
