//go:build linux || darwin

package main

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// terminalSize is how many characters a terminal has in a line, and how many lines; 80 and 24 if it does
// not say.
func terminalSize(w io.Writer) (width, height int) {
	f, ok := w.(*os.File)
	if !ok {
		return usualWidth, usualHeight
	}
	var size struct{ rows, columns, x, y uint16 }
	_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if failed != 0 || size.rows == 0 || size.columns == 0 {
		return usualWidth, usualHeight
	}
	return int(size.columns), int(size.rows)
}
