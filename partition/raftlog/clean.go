package raftlog

import "github.com/cockroachdb/pebble/v2/vfs"

// Clean reports whether the store in dir was closed in order, by its seal alone, and changes nothing; it is
// false too while a process has the store open. Errors: *MissingError, *CorruptError, or what the file
// system said.
func Clean(dir string) (bool, error) {
	d, err := readSeal(vfs.Default, dir)
	if err != nil {
		return false, (&Store{dir: dir}).named(err)
	}
	if d == nil || d.state == sealCreating {
		return false, &MissingError{Store: dir, Detail: "no store was made here"}
	}
	return d.state == sealClean, nil
}
