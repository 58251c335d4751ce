// Package reload keeps a value up to date with its files: certificates, lists of tokens and keys that are
// replaced while a process runs.
//
// It owns one goroutine for each set of files. It promises that Get never reads a disk and returns the last value
// whose files were readable and valid. It writes nothing; a crash loses nothing, since the next start reads the files.
//
// Files are compared by content, not by time of change: a copy that keeps its times is noticed, and so is a
// symbolic link that now points to another folder. A check may see a set that is replaced file by file half
// way; then Parse refuses it, or the next check sees the rest.
package reload

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultEvery is how often files are read unless Options.Every says otherwise.
const DefaultEvery = 3 * time.Second

// MaxBytes bounds one file. A larger one is refused: it is not what was meant.
const MaxBytes = 4 << 20

// Options of Open.
type Options[T any] struct {
	// Paths are the files, at least one. An empty path means an unused file; its content is nil.
	Paths []string
	// Parse makes the value of the contents, in the order of Paths. It is called by one goroutine at a time.
	Parse func(contents [][]byte) (T, error)
	// Every is how often the files are read; DefaultEvery if 0.
	Every time.Duration
	// Changed is called with each new value after it took effect; it may be nil.
	Changed func(T)
	// Failed is called when changed files could not be read or parsed, once for each state of the files; it
	// may be nil.
	Failed func(error)
}

// Value is a value that follows its files. All methods are safe for concurrent use.
type Value[T any] struct {
	opts    Options[T]
	current atomic.Pointer[T]

	mu       sync.Mutex // one reload at a time
	seen     [][]byte   // the contents checked last, good or bad
	reported string     // the read error that was reported last

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
}

// Open reads the files and watches them until Close. The error is that of the file that cannot be read, or
// Parse's.
func Open[T any](opts Options[T]) (*Value[T], error) {
	if opts.Every <= 0 {
		opts.Every = DefaultEvery
	}
	v := &Value[T]{opts: opts, stop: make(chan struct{}), done: make(chan struct{})}
	contents, err := read(opts.Paths)
	if err != nil {
		return nil, err
	}
	first, err := opts.Parse(contents)
	if err != nil {
		return nil, err
	}
	v.seen = contents
	v.current.Store(&first)
	go v.watch()
	return v, nil
}

// Get is the last good value.
func (v *Value[T]) Get() T { return *v.current.Load() }

// Reload reads the files now and takes their value if they have changed and make sense.
func (v *Value[T]) Reload() {
	v.mu.Lock()
	defer v.mu.Unlock()
	contents, err := read(v.opts.Paths)
	if err != nil {
		// The same error is reported once, not every few seconds.
		if text := err.Error(); text != v.reported {
			v.reported = text
			v.failed(err)
		}
		return
	}
	v.reported = ""
	if same(contents, v.seen) {
		return
	}
	v.seen = contents
	next, err := v.opts.Parse(contents)
	if err != nil {
		v.failed(err)
		return
	}
	v.current.Store(&next)
	if v.opts.Changed != nil {
		v.opts.Changed(next)
	}
}

// Close stops watching and waits for its goroutine to end. Get still answers. A second Close does nothing.
func (v *Value[T]) Close() {
	v.stopOnce.Do(func() { close(v.stop) })
	<-v.done
}

func (v *Value[T]) failed(err error) {
	if v.opts.Failed != nil {
		v.opts.Failed(err)
	}
}

func (v *Value[T]) watch() {
	defer close(v.done)
	ticker := time.NewTicker(v.opts.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			v.Reload()
		case <-v.stop:
			return
		}
	}
}

func read(paths []string) ([][]byte, error) {
	contents := make([][]byte, len(paths))
	for i, path := range paths {
		if path == "" {
			continue
		}
		content, err := readFile(path)
		if err != nil {
			return nil, err
		}
		contents[i] = content
	}
	return contents, nil
}

// readFile is os.ReadFile with a bound.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > MaxBytes {
		return nil, fmt.Errorf("%s: more than %d bytes", path, MaxBytes)
	}
	return content, nil
}

func same(a, b [][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
