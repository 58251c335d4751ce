package entity

// requestKey names an operation among all of an entity's: no two that wait have the same.
type requestKey struct {
	origin  Party
	request string
}

func keyOf(o operation) requestKey { return requestKey{o.From(), o.request()} }

// indexFrom is how many entries wait before their requests are indexed: fewer are compared one by one.
const indexFrom = 16

// waitsFor reports whether an operation of this origin and request waits in any list. Its cost does not grow with the
// lists.
func (s *State) waitsFor(m operation) bool {
	k := keyOf(m)
	if s.waiting != nil {
		return s.waiting[k]
	}
	lists := [...][]Entry{s.Queue, s.Lane, s.Delayed}
	if len(s.Queue)+len(s.Lane)+len(s.Delayed) > indexFrom {
		s.waiting = map[requestKey]bool{}
	}
	found := false
	for _, list := range lists {
		for _, e := range list {
			if o, ok := e.Message.(operation); ok {
				found = found || keyOf(o) == k
				if s.waiting != nil {
					s.waiting[keyOf(o)] = true
				}
			}
		}
	}
	return found
}

// joined notes in the index that an operation waits.
func (s *State) joined(m Message) {
	if o, ok := m.(operation); ok && s.waiting != nil {
		s.waiting[keyOf(o)] = true
	}
}

// left notes in the index that an operation waits no more.
func (s *State) left(o operation) {
	if delete(s.waiting, keyOf(o)); len(s.waiting) == 0 {
		s.waiting = nil // an index keeps the memory of its greatest size
	}
}
