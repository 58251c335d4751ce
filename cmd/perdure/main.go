package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{
		stdin:    os.Stdin,
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		lookup:   os.LookupEnv,
		now:      time.Now,
		zone:     time.Local,
		random:   rand.Reader,
		terminal: isTerminal(os.Stdout),
	}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// app is one run of the command: its environment, which tests replace, and its global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	lookup         func(name string) (string, bool)
	now            func() time.Time
	zone           *time.Location
	random         io.Reader
	// terminal says that people read stdout.
	terminal bool

	addrs     []string
	namespace string
	timeout   time.Duration
	json      bool
	access    access

	codecCommand, codecServer string
	// codec converts payloads; nil without --codec-command and --codec-server.
	codec codec

	// out buffers stdout; run flushes it.
	out *bufio.Writer
}

// run runs one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.out = bufio.NewWriter(a.stdout)
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // never nil: that would mean os.Args
	cmd, err := root.ExecuteContextC(ctx)
	if flushErr := a.out.Flush(); err == nil && flushErr != nil {
		err = &commandError{flushErr}
	}
	if err == nil {
		return exitDone
	}
	return a.report(ctx, cmd, err)
}

// isTerminal reports whether a file is a device that shows characters.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
