//go:build unix

package jepsen

import (
	"os"
	"os/exec"
	"syscall"
)

// Signals to a node's process. It cannot catch stop and resume: the process is paused without notice.
var (
	sigKill   os.Signal = syscall.SIGKILL
	sigTerm   os.Signal = syscall.SIGTERM
	sigStop   os.Signal = syscall.SIGSTOP
	sigResume os.Signal = syscall.SIGCONT
)

// ownGroup keeps the terminal's Ctrl-C from the nodes: the harness ends them in its own order.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	withHarness(cmd.SysProcAttr)
}

// alive says whether a process with this id exists.
func alive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }
