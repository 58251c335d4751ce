//go:build !amd64 && !arm64

package durable

import "runtime"

// goroutine identifies the calling goroutine among the live ones. The runtime shows it only in a stack trace
// ("goroutine 12 [running]:"), so it costs microseconds, the more the deeper the caller's stack.
func goroutine() uintptr {
	var buf [32]byte
	n := runtime.Stack(buf[:], false)
	var num uintptr
	for _, c := range buf[len("goroutine "):n] {
		if c < '0' || c > '9' {
			break
		}
		num = num*10 + uintptr(c-'0')
	}
	return num
}
