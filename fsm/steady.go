package fsm

import (
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
)

// steady lets short reads do without a snapshot of Pebble, whose end looks for compactions. A read notes the version
// first. It takes nothing from the database that it has read after another version began.
//
//	version is odd while a batch of entries is being stored
//	applied, clock and importing are those of the database while the version is even; version == 0: they are not known
type steady struct {
	version, applied atomic.Uint64
	clock            atomic.Int64
	importing        atomic.Bool
}

// begin and end surround the storing of a batch. One goroutine at a time calls them. A begin without an end, as of a
// Restore, lasts until the next end.
func (s *steady) begin() {
	if s.version.Load()&1 == 0 {
		s.version.Add(1)
	}
}

func (s *steady) end(m *machine.Machine) {
	s.applied.Store(m.Applied())
	s.clock.Store(m.Clock())
	s.importing.Store(m.Importing())
	s.version.Add(1)
}

// errChanged ends a read during which entries were stored.
var errChanged = errors.New("the state has changed meanwhile")

// steadyView is a state.Reader over the database while it is at one version.
type steadyView struct {
	view
	of      *steady
	version uint64
}

// Get implements state.Reader.
func (v steadyView) Get(key []byte) ([]byte, bool, error) {
	value, ok, err := v.view.Get(key)
	if v.of.version.Load() != v.version {
		return nil, false, errChanged
	}
	return value, ok, err
}

// Scan implements state.Reader. All rows are as of one moment, which must be of the version.
func (v steadyView) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	it, err := v.r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	if v.of.version.Load() != v.version {
		return errors.Join(errChanged, it.Close())
	}
	return scan(it, fn)
}

// querySteady is Query without a snapshot. It fails with errChanged if entries were stored meanwhile, or the version is not
// known.
func (s *Store) querySteady(q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, err error) {
	err = s.read(func(db *pebble.DB) error {
		version := s.steady.version.Load()
		if version == 0 || version&1 == 1 {
			return errChanged
		}
		at := steadyView{view{db}, &s.steady, version}
		index = s.steady.applied.Load()
		x := &query.Read{Must: state.Must{From: at}, ClockMS: s.steady.clock.Load(), Partition: s.opts.Machine.Partition, Query: q, ListBudget: query.ListBudget,
			Importing: s.steady.importing.Load()}
		if s.steady.version.Load() != version {
			return errChanged
		}
		var err error
		reply, err = x.Answer()
		return err
	})
	return reply, index, err
}

// isShort reports whether a query reads a few rows.
func isShort(q *commandv1.Query) bool {
	switch q.Kind.(type) {
	case *commandv1.Query_Result, *commandv1.Query_Task, *commandv1.Query_Promise:
		return true
	}
	return false
}
