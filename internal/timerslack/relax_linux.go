package timerslack

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// again tells the program that it was executed by Relax. A kernel that loses the slack must not make it do so forever.
const again = "PERDURE_TIMERS_RELAXED"

// Relax executes the program again with the given slack for all of its threads, and does not return then. It returns nil if
// the process has another slack than the kernel's default: that of an earlier Relax, of a service's TimerSlackNSec, or none, as
// processes with a real-time policy. On an error the process goes on as it is. A program calls it first: what runs beside it ends.
func Relax(slack time.Duration) error {
	if os.Getenv(again) != "" {
		return os.Unsetenv(again)
	}
	runtime.LockOSThread() // the slack is this thread's, which becomes the new program's first
	defer runtime.UnlockOSThread()
	switch have, err := current(); {
	case err != nil:
		return err
	case have != kernelDefault:
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := set(slack); err != nil {
		return err
	}
	err = syscall.Exec(program, os.Args, append(os.Environ(), again+"=1"))
	_ = set(kernelDefault)
	return fmt.Errorf("executing %s: %w", program, err)
}

// current is the slack of the calling thread.
func current() (time.Duration, error) {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0, fmt.Errorf("reading the timer slack: %w", err)
	}
	return time.Duration(n), nil
}

// set changes the slack of the calling thread.
func set(slack time.Duration) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("setting the timer slack: %w", err)
	}
	return nil
}
