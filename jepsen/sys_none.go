//go:build !unix

package jepsen

import (
	"os"
	"os/exec"
)

// There are no such signals here: only killing works, and the other faults say so.
var (
	sigKill   = os.Kill
	sigTerm   = os.Kill
	sigStop   = os.Interrupt
	sigResume = os.Interrupt
)

func ownGroup(*exec.Cmd) {}

func alive(int) bool { return true }
