//go:build cgo

package memlimit

// OffHeap says that Pebble keeps its block cache and its memtables outside Go's heap, as it does in a build
// with cgo.
const OffHeap = true
