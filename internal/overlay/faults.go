package overlay

import (
	"fmt"
	"os"
	"time"
)

// FaultsEnv, in the environment of a node built with Faults, names the file that says what disturbs it: see WriteFaults. The node
// reads it again every 10 ms.
const FaultsEnv = "PERDURE_JEPSEN_FAULTS"

// WriteFaults replaces the file that FaultsEnv names. The node's wall clock is then ahead of the machine's, or behind if negative;
// its timers do not feel it. Each write takes longer by sync to reach the disk.
func WriteFaults(file string, ahead, sync time.Duration) error {
	next := file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%d %d\n", ahead, sync), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// Faults are patches of cmd/node for a node whose wall clock and whose disk a harness can disturb while it runs: they change Go's
// own time.Now, and what every write to disk waits for.
func Faults() []Patch {
	return []Patch{
		{Package: "time", File: "time.go", From: "import (\n\t\"errors\"\n", To: "import (\n\t\"errors\"\n\t\"sync/atomic\"\n"},
		{Package: "time", File: "time.go", From: "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", To: `var JepsenStep atomic.Int64

func Now() Time {
	sec, nsec, mono := runtimeNow()
	if step := JepsenStep.Load(); step != 0 {
		n := int64(nsec) + step
		sec, n = sec+n/1e9, n%1e9
		if n < 0 {
			sec, n = sec-1, n+1e9
		}
		nsec = int32(n)
	}
`},
		{Package: "syscall", File: "jepsen_sync.go", To: `package syscall

import "sync/atomic"

var JepsenSync atomic.Int64

// JepsenWait waits as long as a sync takes on a slow disk.
func JepsenWait() {
	if n := JepsenSync.Load(); n > 0 {
		t := NsecToTimespec(n)
		_ = Nanosleep(&t, nil)
	}
}
`},
		{Package: "syscall", File: "syscall_linux.go", From: "func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {\n",
			To: `func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {
	if (trap == SYS_FSYNC || trap == SYS_FDATASYNC) && JepsenSync.Load() > 0 {
		JepsenWait()
	}
`},
		{Package: "perdure/cmd/node", File: "jepsen_faults.go", To: `package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

func init() {
	file := os.Getenv("` + FaultsEnv + `")
	if file == "" {
		return
	}
	follow := func() {
		var clock, sync int64
		if data, err := os.ReadFile(file); err == nil {
			_, _ = fmt.Sscan(string(data), &clock, &sync)
		}
		time.JepsenStep.Store(clock)
		syscall.JepsenSync.Store(sync)
	}
	follow()
	go func() {
		for {
			time.Sleep(10 * time.Millisecond)
			follow()
		}
	}()
}
`},
	}
}
