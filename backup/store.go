package backup

import (
	"context"
	"io"
)

// Object is an object of a store.
type Object struct {
	Name string
	Size int64
}

// Store holds objects under names like "files/SHA256". It is safe for concurrent use.
type Store interface {
	// Put stores an object of size bytes, whole and durably or not at all. It replaces one of the same name.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get opens an object. The error is a *NotFoundError if there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the objects whose names begin with a prefix that ends with a slash, in the order of names.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Delete removes an object. It succeeds if there is none.
	Delete(ctx context.Context, name string) error
	// Exists returns an object's size, and whether there is one.
	Exists(ctx context.Context, name string) (size int64, ok bool, err error)
}
