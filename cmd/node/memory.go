package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"perdure/embed"
	"perdure/internal/memlimit"
)

// gcVariable is the environment variable that Go's collector reads by itself.
const gcVariable = "GOGC"

// limitMemory makes the garbage collector keep to the process's memory limit. Until ctx ends the heap's
// growth follows its size, unless GOGC is set: see package memlimit. It logs its settings.
func limitMemory(ctx context.Context, cfg embed.Config, lookup func(string) (string, bool), log *slog.Logger) {
	request := memlimit.Request{Configured: cfg.MemoryLimit, Lookup: lookup, Root: os.DirFS("/")}
	if memlimit.OffHeap {
		request.OffHeap = cfg.CacheBytes + cfg.MemtableBytes
	}
	limit, err := memlimit.Find(request)
	if err != nil {
		log.Warn("cannot read the memory limit of the control groups", "event", "memory_limit_unread", "error", err)
	}
	if limit.Heap > 0 {
		debug.SetMemoryLimit(limit.Heap)
		if limit.Process/10*9-request.OffHeap < limit.Heap {
			log.Warn("caches and memtables take more than two fifths of the memory limit", "event", "memory_limit_tight",
				"limit_bytes", limit.Process, "cache_bytes", cfg.CacheBytes, "memtable_bytes", cfg.MemtableBytes)
		}
	}
	if v, ok := lookup(gcVariable); !ok || v == "" {
		go memlimit.FollowHeap(ctx)
	}
	log.Info("memory limit", "event", "memory_limit", "source", string(limit.Source), "limit_bytes", limit.Process,
		"heap_limit_bytes", debug.SetMemoryLimit(-1))
}
