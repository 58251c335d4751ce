package fsm

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// Inspect opens a store read-only, checks that it matches the options, and returns its status. It changes
// nothing on disk. A writable open lets Pebble delete unknown files, so a caller that may refuse the store
// inspects it first. Errors are those of Open.
func Inspect(dir string, opts Options) (Status, error) {
	return newStore(dir, opts).inspect()
}

func (s *Store) inspect() (Status, error) {
	fs := s.opts.FS
	exists, why := false, "no such directory"
	if _, err := fs.Stat(s.dir); err == nil {
		why = "the directory holds no database, or not the file that points to its MANIFEST"
		desc, err := pebble.Peek(s.dir, fs)
		if err != nil {
			return Status{}, s.damaged(err)
		}
		if exists = desc.Exists; exists {
			if err := checkManifest(fs, desc.ManifestFilename); err != nil {
				return Status{}, s.damaged(err)
			}
		}
	}
	if !exists {
		if s.opts.Create {
			return Status{}, nil
		}
		return Status{}, &MissingError{s.dir, why}
	}
	db, err := s.openDB(s.dir, true)
	if err != nil {
		return Status{}, s.damaged(err)
	}
	st, err := s.checkIdentity(view{db})
	return st, errors.Join(err, db.Close())
}

// checkIdentity refuses a store whose own values are not those that the options ask for.
func (s *Store) checkIdentity(v view) (Status, error) {
	have, stamped, err := v.Get(keys.MetaKey(metaStamp))
	if err != nil {
		return Status{}, s.damaged(err)
	}
	switch {
	case stamped && !s.opts.anyStamp && !bytes.Equal(have, s.opts.Stamp):
		return Status{}, &ForeignError{s.dir, have, s.opts.Stamp}
	case stamped && s.opts.Create:
		return Status{}, &ExistsError{s.dir}
	case !stamped && !s.opts.Create:
		return Status{}, &DamagedError{s.dir, errors.New("the store was never finished: it has no stamp")}
	}
	if err := state.CheckLevel(v); err != nil {
		return Status{}, s.damaged(err)
	}
	st, err := status(v)
	if err != nil {
		return Status{}, s.damaged(err)
	}
	return st, nil
}
