package cluster

import (
	"os/exec"
	"syscall"
)

// withCaller makes the kernel end the process when the caller's process ends, and keeps the terminal's Ctrl-C from it.
func withCaller(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
