package raftlog

import (
	"errors"
	"time"
)

// sealSoon asks for a new seal; it never blocks, so the backend may call it from anywhere.
func (s *Store) sealSoon() {
	select {
	case s.sealDue <- struct{}{}:
	default:
	}
}

// sealLoop lets the seal follow the backend until Close.
func (s *Store) sealLoop() {
	defer close(s.sealDone)
	for {
		select {
		case <-s.sealStop:
			return
		case <-s.sealDue:
		}
		if err := s.followUp(); err != nil {
			s.log.Warn("the seal does not follow", "store", s.dir, "error", err)
		}
		select {
		case <-s.sealStop:
			return
		case <-time.After(sealEvery):
		}
	}
}

// followUp writes a live seal. A failure leaves the old one, which still holds.
func (s *Store) followUp() error {
	// Close holds life and waits for this goroutine; it writes a better seal.
	if !s.life.TryRLock() {
		return nil
	}
	defer s.life.RUnlock()
	if s.err() != nil {
		return nil
	}
	return s.reseal(sealLive)
}

// reseal writes a seal of the present state. The caller holds life, or is alone.
func (s *Store) reseal(state sealState) error {
	// The logs' ends are looked at before the backend's files: both only ever promise what is durable.
	var bad error
	err := s.seal.change(func(d *sealData) bool {
		bad = s.describe(d, state)
		return bad == nil
	})
	return errors.Join(bad, err)
}

// describe puts the present floors and files into d.
func (s *Store) describe(d *sealData, state sealState) error {
	spans, err := s.spans()
	if err != nil {
		return err
	}
	w, err := s.drv.witness()
	if err != nil {
		return err
	}
	d.state, d.witness = state, w
	d.groups = make(map[uint32]span, len(spans))
	for g, sp := range spans {
		d.groups[g] = span{last: sp.last}
	}
	return nil
}

// sealAs writes a seal of exact spans, after the backend closed.
func (s *Store) sealAs(state sealState, spans map[uint32]span) error {
	w, err := s.drv.witness()
	if err != nil {
		return err
	}
	return s.seal.change(func(d *sealData) bool {
		d.state, d.witness, d.groups = state, w, spans
		return true
	})
}

// lower makes sure that the seal does not demand more of a group than it is about to hold. It is called
// after the log's end was lowered in memory and before the backend loses the entries.
func (s *Store) lower(group uint32, last uint64) error {
	return s.seal.change(func(d *sealData) bool {
		floor, ok := d.groups[group]
		if !ok || floor.last <= last {
			return false
		}
		d.groups[group] = span{last: last}
		return true
	})
}

// register lists a group in the seal, with nothing demanded of it yet.
func (s *Store) register(group uint32) error {
	return s.seal.change(func(d *sealData) bool {
		if _, ok := d.groups[group]; ok {
			return false
		}
		d.groups[group] = span{}
		return true
	})
}
