//go:build unix && !linux

package jepsen

import "syscall"

// withHarness has no means here: a node outlives a harness that is killed.
func withHarness(*syscall.SysProcAttr) {}
