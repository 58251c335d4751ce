package jepsen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"
	"time"
)

// heapFile has the address at which a worker serves its profiles.
func heapFile(book string) string { return strings.TrimSuffix(book, ".book") + ".pprof" }

// serveHeap serves a worker's heap profiles on loopback until the process ends, and writes the address into heapFile.
func serveHeap(book string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof/heap", pprof.Handler("heap"))
	go func() { _ = (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l) }()
	return os.WriteFile(heapFile(book), []byte(l.Addr().String()), 0o644)
}

// heapOf is how many bytes of the heap of the process that serves profiles at addr are in use after a garbage
// collection, without the memtables and block caches of its stores. Those grow up to their settings and are
// then flushed or evicted.
func heapOf(ctx context.Context, addr string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return heapIn(resp.Body)
}

// heapIn reads a heap profile in text. Each record has the number and the bytes of sampled objects, and their
// stack; the first line ends with twice the number of bytes between two samples.
func heapIn(profile io.Reader) (int64, error) {
	var number, bytes, stores, between float64
	lines := bufio.NewScanner(profile)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := lines.Text()
		switch {
		case strings.HasPrefix(text, "heap profile:"):
			if _, err := fmt.Sscanf(text[strings.LastIndexByte(text, '/')+1:], "%g", &between); err != nil {
				return 0, fmt.Errorf("%q: %w", text, err)
			}
			between /= 2
		case strings.HasPrefix(text, "#\t") && strings.Contains(text, "pebble/v2/internal/manual.") && number > 0:
			stores += bytes / (1 - math.Exp(-bytes/number/between))
			number = 0
		case strings.HasPrefix(text, "# HeapAlloc = "):
			all, err := strconv.ParseInt(strings.TrimPrefix(text, "# HeapAlloc = "), 10, 64)
			return all - int64(stores), err
		case strings.Contains(text, " @ "):
			if _, err := fmt.Sscanf(text, "%g: %g [", &number, &bytes); err != nil {
				return 0, fmt.Errorf("%q: %w", text, err)
			}
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("the profile ends before the heap in use"))
}

// ScaleHeap is the heap in use of one process in bytes: see heapOf.
type ScaleHeap struct {
	Name string
	// Tenths are the figures when each tenth of the journal was written.
	Tenths []int64
}

// Bounds of growth: from the second to the last tenth of a journal, the heap of a worker or a node may grow
// by this many bytes, and by so many more for each event. A worker has a pointer for each operation, a node
// the state that the journal's rules need of it; a step has three events.
const (
	workerHeapGrowth  = 500_000
	nodeHeapGrowth    = 4_000_000
	workerHeapByEvent = 8
	nodeHeapByEvent   = 32
)

// CheckScaleHeap reports processes whose heap grows with the journal.
func CheckScaleHeap(heaps []ScaleHeap, events int) []string {
	var f findings
	for _, h := range heaps {
		most := int64(nodeHeapGrowth + nodeHeapByEvent*events)
		if strings.HasPrefix(h.Name, "w") {
			most = int64(workerHeapGrowth + workerHeapByEvent*events)
		}
		switch {
		case len(h.Tenths) != 10:
			f.add("the heap of %s was read %d times, not at each tenth", h.Name, len(h.Tenths))
		case h.Tenths[9]-h.Tenths[1] > most:
			f.add("the heap of %s grew from %.1f MB at the second tenth to %.1f MB at the last, at most %.1f MB are allowed",
				h.Name, float64(h.Tenths[1])/1e6, float64(h.Tenths[9])/1e6, float64(most)/1e6)
		}
	}
	return f.list()
}

// watchHeap reads the heaps of all processes when each tenth of the journal of an execution was written.
func (r *scaleRun) watchHeap(ctx context.Context, id string, events int) ([]ScaleHeap, error) {
	var heaps []ScaleHeap
	var addrs []string
	for _, n := range r.c.nodes {
		heaps, addrs = append(heaps, ScaleHeap{Name: n.Name}), append(addrs, n.HTTPAddr)
	}
	for _, w := range r.c.workers {
		addr, err := os.ReadFile(heapFile(w.Book))
		if err != nil {
			return nil, err
		}
		heaps, addrs = append(heaps, ScaleHeap{Name: w.Name}), append(addrs, string(addr))
	}
	for tenth := 1; tenth <= 10; {
		e, err := r.cl.Describe(ctx, id)
		if err != nil {
			return heaps, err
		}
		if int(e.GetJournalEvents()) < events*tenth/10 {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return heaps, err
			}
			continue
		}
		for i := range heaps {
			bytes, err := heapOf(ctx, addrs[i])
			if err != nil {
				return heaps, fmt.Errorf("heap of %s: %w", heaps[i].Name, err)
			}
			heaps[i].Tenths = append(heaps[i].Tenths, bytes)
		}
		tenth++
	}
	return heaps, nil
}
