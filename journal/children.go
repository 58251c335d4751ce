package journal

// NextOpenCall returns the first child number at or above from whose function is not known to have ended; ok
// is false if there is none. Such a function is a child execution, or a node of a graph.
func (s *State) NextOpenCall(from uint32) (n uint32, ok bool) {
	for i := int(from); i < len(s.children); i++ {
		if c := &s.children[i]; c.call == callInvoke && c.invoke == InvokeFunction && !c.resolved {
			return uint32(i), true
		}
	}
	return 0, false
}
