package raftlog

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
			s.log.Warn("cannot update log seal", "event", "seal_failed", "store", s.dir, "error", err)
		}
		next, stop := s.clock.After(sealEvery)
		select {
		case <-s.sealStop:
			stop()
			return
		case <-next:
		}
	}
}

// followUp writes a live seal. A failure leaves the old one, which still holds.
func (s *Store) followUp() error {
	// Close holds closeMu and waits for this goroutine; it writes a better seal.
	if !s.closeMu.TryRLock() {
		return nil
	}
	defer s.closeMu.RUnlock()
	if s.err() != nil {
		return nil
	}
	return s.reseal()
}

// reseal writes a live seal of the present state.
func (s *Store) reseal() error {
	w, err := s.drv.witness()
	if err != nil {
		return err
	}
	return s.sealLive(w)
}

// sealFlushed writes a live seal before the backend removes the logs that a flush made superfluous. If the
// flush's record in the MANIFEST is lost later, the seal shows it; before the seal, no log was removed. The
// backend holds its locks, so sealFlushed must not call it.
func (s *Store) sealFlushed(w witness, err error) {
	if err == nil {
		err = s.sealLive(w)
	}
	if err != nil {
		_ = s.fatal(err)
	}
}

// sealLive writes a live seal with the given witness and the floors known from memory. It does not call the
// backend.
func (s *Store) sealLive(w witness) error {
	return s.seal.change(func(d *sealData) bool {
		if d.state == sealCreating && !s.made.Load() {
			return false // Open writes the first one
		}
		// Floors first, then files, would be wrong only if a floor could rise above what is durable.
		s.mu.Lock()
		for g, l := range s.groups {
			if last, ok := l.floor(); ok && (last != 0 || d.groups[g] != span{}) {
				d.groups[g] = span{last: last}
			}
		}
		s.mu.Unlock()
		d.state, d.witness = sealLive, w
		return true
	})
}

// sealExact writes a clean seal, after the backend closed.
func (s *Store) sealExact(spans map[uint32]span) error {
	w, err := s.drv.witness()
	if err != nil {
		return err
	}
	return s.seal.change(func(d *sealData) bool {
		d.state, d.witness, d.groups = sealClean, w, spans
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
