package fsm

import (
	"errors"
	"sync"

	"perdure/fsm/audit"
	"perdure/fsm/state"
)

// ErrInterrupted reports that an audit ended because the state is being closed or replaced.
var ErrInterrupted = errors.New("fsm: the audit gave way: the state is being closed or replaced")

// Audit continues an audit (see audit.Auditor) on a snapshot of the state, which it holds until pause or the
// end. It may run concurrently with ApplyBatch and delays no batch. Audit calls stopped at every step; an
// error of stopped ends the audit and is returned unchanged, as are ErrClosed and ErrInterrupted. Any other
// error is the storage's and halts the store. Violations do not halt it: the caller finds them in the report.
func (s *Store) Audit(a *audit.Auditor, now int64, pause func() bool, stopped func() error) (done bool, err error) {
	var given error // why the audit ended, if not by the storage
	err = s.snapshot(func(below state.Reader) error {
		r := &auditView{below: below, ended: func() error {
			if s.auditWaiters.any() {
				given = ErrInterrupted
			} else {
				given = stopped()
			}
			return given
		}}
		var err error
		done, err = a.Continue(r, now, pause)
		return err
	})
	switch {
	case err == nil || errors.Is(err, ErrClosed):
		return done, err
	case given != nil:
		return false, given
	}
	err = s.damaged(err)
	s.fail(err)
	return false, err
}

// auditWaiters counts the callers that wait for all audits to release the database.
type auditWaiters struct {
	mu      sync.Mutex
	waiting int
}

func (g *auditWaiters) add(by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += by
}

func (g *auditWaiters) any() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting > 0
}

// auditView is a snapshot whose reads fail once ended returns an error.
type auditView struct {
	below state.Reader
	ended func() error
}

// Get implements state.Reader.
func (v *auditView) Get(key []byte) ([]byte, bool, error) {
	if err := v.ended(); err != nil {
		return nil, false, err
	}
	return v.below.Get(key)
}

// Scan implements state.Reader.
func (v *auditView) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	var ended error
	err := v.below.Scan(lower, upper, func(key, value []byte) bool {
		if ended = v.ended(); ended != nil {
			return false
		}
		return fn(key, value)
	})
	if ended != nil {
		return ended
	}
	return err
}
