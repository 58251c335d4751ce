package entity

import "strconv"

// Commit is what a worker brings back of a [Batch] (durable functions semantics, section 5.1.3).
type Commit struct {
	// Incarnation, Version and Lane are those of the batch.
	Incarnation, Version uint64
	Lane                 bool
	// Results are those of the first operations of the batch, in order, at least one. The operations
	// without result stay in the queue.
	Results []Result
	// Exists and Value are the value after the last of these operations. A failed operation leaves the
	// value as it found it; that is the worker's business.
	Exists bool
	Value  []byte
	// Sends are the signals that these operations sent, in order. There is nothing else that an entity
	// can send (figure 9).
	Sends []Send
}

// Result is the outcome of one operation.
type Result struct {
	// Request is the operation's.
	Request string
	// Failed reports that the operation failed; Output then describes the failure. Only the output of a call
	// is delivered.
	Failed bool
	Output []byte
}

// Send is a signal from an operation to an entity, which may be its own.
type Send struct {
	To        ID
	Operation string
	Input     []byte
	// DueAt is as in [Signal].
	DueAt int64
}

// Commit applies a worker's commit: value, replies, signals and queue in one. It returns the messages to be
// sent, in order: the replies, the signals, and the next step of a lock request that came to the front. A
// signal to the entity itself is among them and comes back through [State.Deliver]. It first runs the
// expirations at now, as [State.Tick] does.
//
// The error is an [*Error]; the state is then unchanged. Conflict means that another commit was first, or
// that the batch is of an earlier incarnation, or of the lane and the entity was locked since. The worker's work is
// then void, and another worker has run or will run the operations.
func (s *State) Commit(now int64, c Commit) ([]Message, error) {
	taken, out, refused := s.check(c)
	if refused != nil {
		refused.Op, refused.Entity = "commit", s.ID
		return nil, refused
	}
	from := s.Queue
	if c.Lane {
		from = s.Lane
	}
	for _, at := range taken {
		s.left(from[at].Message.(operation))
	}
	s.Tick(now)
	if c.Lane {
		s.Lane = without(s.Lane, taken)
		s.Tick(now)
	} else {
		s.dequeue(taken...)
	}
	s.Exists, s.Value = c.Exists, c.Value
	s.Version++
	return append(out, s.settle()...), nil
}

// check checks a commit without changing the state. It returns the indexes of the entries that the
// commit removes from its list, ascending, and the messages to send.
func (s *State) check(c Commit) (taken []int, out []Message, refused *Error) {
	switch {
	case c.Incarnation != s.Incarnation:
		return nil, nil, &Error{Code: Conflict, Rule: RuleIncarnation,
			Detail: "the record has " + number(s.Incarnation) + ", the commit names " + number(c.Incarnation)}
	case c.Version != s.Version:
		return nil, nil, &Error{Code: Conflict, Rule: RuleVersion,
			Detail: "the record has " + number(s.Version) + ", the commit names " + number(c.Version)}
	case c.Lane && s.Lock.Held():
		return nil, nil, &Error{Code: Conflict, Rule: RuleLane, Detail: "the entity is " + s.Lock.String()}
	case len(c.Results) == 0:
		return nil, nil, &Error{Code: Invalid, Rule: RuleResults, Detail: "a batch of which nothing was run is given up, not committed"}
	case !c.Exists && len(c.Value) != 0:
		return nil, nil, &Error{Code: Invalid, Rule: RuleAbsent, Detail: "the value has bytes but is said not to exist"}
	}
	for i, o := range s.eligible(c.Lane) {
		if len(taken) == len(c.Results) {
			break
		}
		r := c.Results[len(taken)]
		if r.Request != o.request() {
			return nil, nil, &Error{Code: Invalid, Rule: RuleBatch, Party: o.From(), Request: r.Request,
				Detail: "result " + strconv.Itoa(len(taken)) + " should be that of request " + strconv.Quote(o.request())}
		}
		taken = append(taken, i)
		if call, ok := o.(Call); ok {
			out = append(out, call.reply(r))
		}
	}
	if len(taken) < len(c.Results) {
		return nil, nil, &Error{Code: Invalid, Rule: RuleBatch, Request: c.Results[len(taken)].Request,
			Detail: strconv.Itoa(len(c.Results)) + " results for " + strconv.Itoa(len(taken)) + " operations"}
	}
	for i, send := range c.Sends {
		// Incarnation, version and position make a request that this entity never uses again.
		m := Signal{Origin: s.ID.party(), Entity: send.To, Request: number(s.Incarnation) + "." + number(s.Version) + "." + strconv.Itoa(i),
			Operation: send.Operation, Input: send.Input, DueAt: send.DueAt}
		if rule, detail := m.fault(); rule != "" {
			return nil, nil, &Error{Code: Invalid, Rule: rule, Request: m.Request, Detail: detail}
		}
		out = append(out, m)
	}
	return taken, out, nil
}

// without returns a list without the entries at the given indexes, which ascend.
func without(list []Entry, indexes []int) []Entry {
	if n := len(indexes); n == 0 || indexes[n-1] == n-1 {
		return behind(list, n)
	}
	rest, from := make([]Entry, 0, len(list)-len(indexes)), 0
	for _, at := range indexes {
		rest, from = append(rest, list[from:at]...), at+1
	}
	return append(rest, list[from:]...)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
