//go:build unix

package rpc

import "syscall"

// openFiles is how many files the process may have open; 0 if that is not known.
func openFiles() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int64(limit.Cur)
}
