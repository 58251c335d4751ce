package raftlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func openMem(t *testing.T) *Store {
	t.Helper()
	s, err := Open("log", Options{FS: vfs.NewMem(), MustCreate: true, OnFatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// countingDriver counts reads.
type countingDriver struct {
	driver
	gets, scans int
}

func (d *countingDriver) get(group uint32, index uint64) ([]byte, error) {
	d.gets++
	return d.driver.get(group, index)
}

func (d *countingDriver) scan(group uint32, from, to uint64, fn func(uint64, []byte) bool) error {
	d.scans++
	return d.driver.scan(group, from, to, fn)
}
