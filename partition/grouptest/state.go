package grouptest

import (
	"testing"

	"perdure/fsm"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// Stored returns a promise as it is stored: reads also show expirations that have not run yet.
func Stored(t testing.TB, store *fsm.Store, id string) recovery.Promise {
	t.Helper()
	var p recovery.Promise
	if err := store.View(func(r state.Reader) error {
		b, _, err := r.Get(keys.Of(keys.Promise, Namespace, id))
		if err == nil {
			p, err = recovery.DecodePromise(b)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p
}
