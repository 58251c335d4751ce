package backup

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Fetch writes the files of one state, and those of its deltas, into a directory, which it makes. The caller adds the
// deltas, in their order, by fsm.ApplyDelta. fetched, if not nil, is called with the bytes of each file. The error is a
// *DamagedError or a *NotFoundError if a file of the store is not what was copied.
func Fetch(ctx context.Context, store Store, s State, dir string, fetched func(bytes int64)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range s.all() {
		err := f.check()
		if err == nil {
			err = fetchFile(ctx, store, f, filepath.Join(dir, f.Name))
		}
		if err != nil {
			return fmt.Errorf("partition %d, file %s: %w", s.Partition, f.Name, err)
		}
		if fetched != nil {
			fetched(f.Size)
		}
	}
	return nil
}

func fetchFile(ctx context.Context, store Store, f File, path string) error {
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(readObject(ctx, store, f, w), w.Close())
}

// readObject copies a file of a backup and checks its size and hash.
func readObject(ctx context.Context, store Store, f File, w io.Writer) error {
	r, err := store.Get(ctx, f.Object())
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	sum := sha256.New()
	// One byte more than there should be, to notice it.
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(r, f.Size+1))
	switch {
	case err != nil:
		return err
	case n < f.Size:
		return &DamagedError{f.Object(), fmt.Sprintf("it has %d of %d bytes", n, f.Size)}
	case n > f.Size:
		return &DamagedError{f.Object(), fmt.Sprintf("it has more than %d bytes", f.Size)}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 {
		return &DamagedError{f.Object(), "its bytes have the hash " + got}
	}
	return nil
}

// randomText returns a text that no other process has.
func randomText() string { return rand.Text() }
