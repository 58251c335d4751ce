package jepsen

import "syscall"

// withHarness makes the kernel end the process when the harness ends, however it ends.
func withHarness(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
