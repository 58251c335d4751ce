//go:build amd64 || arm64

package durable

// goroutine identifies the calling goroutine among the live ones; a later goroutine may get the number of one
// that has ended. It is the address of the runtime's descriptor, which never moves. It costs about a
// nanosecond: every operation asks for it, replayed ones too.
func goroutine() uintptr
