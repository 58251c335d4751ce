//go:build !cgo

package memlimit

// OffHeap says that Pebble keeps its block cache and its memtables beside Go's heap: it does where it may call C.
const OffHeap = false
