//go:build !linux

package timerslack

import "time"

// Relax does nothing: only Linux has a slack that programs choose.
func Relax(time.Duration) error { return nil }
