// Package stores opens the store of backups at a URL: a folder, or a bucket of a server that speaks S3.
//
// It owns the forms of such a URL, for the command line and for a node's settings, and refuses all others. Opening a store
// sends nothing and changes nothing. The package holds no state, so a crash loses nothing.
package stores

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"perdure/backup"
	"perdure/backup/bucket"
)

// SyntaxError says that a URL names no store.
type SyntaxError struct{ Err error }

func (e *SyntaxError) Error() string { return e.Err.Error() }
func (e *SyntaxError) Unwrap() error { return e.Err }

// Open returns the store at a path, file:///path or s3://bucket/prefix. env reads the environment, which has the bucket's
// credentials (package bucket); nil: the process's. It sends nothing. Errors: *SyntaxError; those of backup.OpenFolder.
func Open(location string, env func(string) string) (backup.Store, error) {
	if strings.HasPrefix(location, "s3://") {
		store, err := bucket.Open(location, env)
		if err != nil {
			return nil, &SyntaxError{err}
		}
		return store, nil
	}
	path, err := folder(location)
	if err != nil {
		return nil, &SyntaxError{err}
	}
	return backup.OpenFolder(path)
}

// Check refuses a URL that names no store, with the error of Open; it reads no folder.
func Check(location string, env func(string) string) error {
	if strings.HasPrefix(location, "s3://") {
		_, err := Open(location, env)
		return err
	}
	if _, err := folder(location); err != nil {
		return &SyntaxError{err}
	}
	return nil
}

// folder is the path of a location that is no bucket.
func folder(location string) (string, error) {
	path := location
	if u, err := url.Parse(location); err == nil && u.Scheme != "" {
		if u.Scheme != "file" || u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return "", fmt.Errorf("%q: neither a path, nor file:///path, nor s3://bucket/prefix", location)
		}
		path = u.Path
	}
	if path == "" {
		return "", errors.New("the URL of the backups is empty")
	}
	return filepath.Clean(path), nil
}
