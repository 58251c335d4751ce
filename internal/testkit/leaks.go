package testkit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// goroutinesEnd bounds the wait for goroutines that a Close has asked to end.
const goroutinesEnd = 20 * time.Second

// Main runs a package's tests and exits the process, as Exit does. Call it from TestMain.
func Main(m *testing.M, options ...goleak.Option) { Exit(m.Run(), options...) }

// Exit ends the process with the code of m.Run, or with 1 when goroutines are left that no Close has joined; options
// name those of libraries that do not end.
func Exit(code int, options ...goleak.Option) {
	if code == 0 {
		if err := leaked(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaked blocks until no goroutine is left but the caller's, for at most 20 s, and returns which ones are.
func leaked(options ...goleak.Option) error {
	deadline := time.Now().Add(goroutinesEnd)
	for {
		err := goleak.Find(options...) // it tries for a second or two
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
