// Package timerslack lets the timers of a server's process be late by some milliseconds, so that the kernel wakes it less often.
//
// While threads of a Go program enter and leave calls of the system, as those of a server with a log always do, a thread of Go's
// runtime, sysmon, wakes every 20 µs to see whether one of them is stuck. Linux makes that some 70 µs, its slack. On a virtual machine each wake
// costs tens of microseconds: of a cluster of three nodes it was a tenth to a third of all CPU. The thread itself pauses for up to
// 10 ms when it finds nothing, so a slack below that changes little of what it promises.
//
// The slack is inherited, and that thread is the first one that a program starts. So a process that is to have it executes its
// program again. It keeps its id, arguments, environment and standard files. Nothing is stored.
package timerslack

import "time"

// Server is the slack of a server: half of the longest pause of the runtime's own thread.
const Server = 5 * time.Millisecond

// kernelDefault is the slack of a process for which nobody has chosen one.
const kernelDefault = 50 * time.Microsecond
