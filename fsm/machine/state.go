package machine

// State is the state below with everything that was applied since the last Committed, as of now. It is for
// looking at what entries would make of a state that is not to be changed; it must not be read while an
// entry is applied.
func (m *Machine) State() Reader { return m.batch }
