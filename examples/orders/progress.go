package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// Progress counts orders and shows the counts: in place on a terminal, as a line a second otherwise.
type Progress struct {
	total                             int
	started, shipped, failed, earlier atomic.Int64
	steps                             func() int64 // of this process
	began                             time.Time
}

// Ended counts an order that has ended; earlier says that it had before this run.
func (p *Progress) Ended(shipped, earlier bool) {
	if shipped {
		p.shipped.Add(1)
	} else {
		p.failed.Add(1)
	}
	if earlier {
		p.earlier.Add(1)
	}
}

// Finished is how many orders have ended.
func (p *Progress) Finished() int { return int(p.shipped.Load() + p.failed.Load()) }

// String is the line.
func (p *Progress) String() string {
	line := fmt.Sprintf("%3.0f s   %d of %d orders finished: %d shipped, %d failed; %d in progress", time.Since(p.began).Seconds(),
		p.Finished(), p.total, p.shipped.Load(), p.failed.Load(), int(p.started.Load())-p.Finished())
	if steps := p.steps(); steps > 0 {
		line += fmt.Sprintf("; %d steps", steps)
	}
	return line
}

// Show shows the progress until stop is called, which shows it a last time.
func (p *Progress) Show(w io.Writer) (stop func()) {
	every, begin, end := time.Second, "", "\n"
	terminal := isTerminal(w)
	if terminal {
		every, begin, end = 100*time.Millisecond, "\r\x1b[K", ""
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprint(w, begin, p, end)
			case <-quit:
				if terminal {
					end = "\n"
				}
				fmt.Fprint(w, begin, p, end)
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// isTerminal reports whether the output is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
