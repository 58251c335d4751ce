package credit

// Link names a connection to a node that assigns tasks. The caller chooses the names.
type Link string

// Home is the link of the ledger's own node, if it has one. The ledger revokes credit from it first when
// another link needs some, and grants it the credit that no other link is entitled to.
const Home Link = ""

// Task is one version of an execution's task.
type Task struct {
	Namespace, ID        string
	Incarnation, Version uint64
}

// Event is something that happened to the worker's capacity. The types below are all there are.
type Event interface{ apply(l *Ledger, now int64) }

type (
	// Announced reports that the worker can take N more tasks.
	Announced struct{ N int }
	// Extended reports that the worker can take N more tasks, and has granted that credit to the holder of Link itself.
	Extended struct {
		Link Link
		N    int
	}
	// Shrunk reports that the worker takes N units of its capacity back, which the holder of Link has just given up.
	Shrunk struct {
		Link Link
		N    int
	}
	// Heard reports that a message of the worker has arrived. A silent worker gets no grants.
	Heard struct{}
	// Tick reports that the time of a Wake has come.
	Tick struct{}

	// LinkOpened says that tasks can come over Link from now on. Leads: its node leads partitions; Of is the number of
	// nodes that do.
	LinkOpened struct {
		Link  Link
		Leads bool
		Of    int
	}
	// LinkLost says that nothing comes over Link any more. Its credit can be granted to others.
	LinkLost struct{ Link Link }
	// Leads reports whether the node of Link leads partitions.
	Leads struct {
		Link  Link
		Leads bool
	}
	// Wants reports whether tasks wait at the node of Link that have no credit there.
	Wants struct {
		Link  Link
		Wants bool
	}
	// Returned answers a Revoke: the holder of Link has given up N units, or has none to spare.
	Returned struct {
		Link Link
		N    int
	}

	// Assigned reports that Task is the worker's and has used a unit of Link. It may come twice, as Assigned or Resent.
	Assigned struct {
		Link Link
		Task Task
	}
	// Resent reports that Task is the worker's, and has used no credit that is known of.
	Resent struct{ Task Task }
	// Dropped reports that a task has used a unit of Link and is not the worker's.
	Dropped struct{ Link Link }
	// Begun reports that Task was sent to the worker.
	Begun struct{ Task Task }
	// Undelivered reports that Task will not be sent to the worker.
	Undelivered struct{ Task Task }
	// Finished reports that the worker does not hold Task any more. The worker announces the capacity itself.
	Finished struct{ Task Task }
)

// Action is something that the caller does for the ledger: Grant, Revoke or Wake.
type Action interface{ action() }

type (
	// Grant gives the holder of Link N units more.
	Grant struct {
		Link Link
		N    int
	}
	// Revoke asks the holder of Link for up to N units that it does not use. At most one is under way for each link.
	Revoke struct {
		Link Link
		N    int
	}
	// Wake asks for a Tick at a time. At most one is under way.
	Wake struct{ At int64 }
)

func (Grant) action()  {}
func (Revoke) action() {}
func (Wake) action()   {}

func (e Announced) apply(l *Ledger, _ int64) {
	l.announced += max(e.N, 0)
	l.idle += max(e.N, 0)
}

func (e Extended) apply(l *Ledger, now int64) {
	k := l.find(e.Link)
	if k == nil { // the credit was lost with the link
		Announced{e.N}.apply(l, now)
		return
	}
	l.announced += max(e.N, 0)
	k.granted += max(e.N, 0)
	k.restUntil = 0
}

func (e Shrunk) apply(l *Ledger, _ int64) {
	if k := l.find(e.Link); k != nil {
		n := max(min(e.N, k.granted), 0)
		k.granted -= n
		l.taken(n)
	}
}

func (Heard) apply(l *Ledger, now int64) { l.heard = max(l.heard, now) }

func (Tick) apply(l *Ledger, _ int64) { l.waking = false }

func (e LinkOpened) apply(l *Ledger, now int64) {
	LinkLost{e.Link}.apply(l, now)
	k := &link{name: e.Link, leads: e.Leads}
	if e.Leads && e.Link != Home && !l.silent(now) {
		l.fund(l.announced / max(e.Of, 1))
	}
	if l.links = append(l.links, k); e.Link == Home {
		copy(l.links[1:], l.links)
		l.links[0] = k
	}
}

func (e LinkLost) apply(l *Ledger, _ int64) {
	for i, k := range l.links {
		if k.name == e.Link {
			l.idle += k.granted
			l.links = append(l.links[:i], l.links[i+1:]...)
			return
		}
	}
}

func (e Leads) apply(l *Ledger, _ int64) {
	if k := l.find(e.Link); k != nil {
		k.leads = e.Leads
	}
}

func (e Wants) apply(l *Ledger, _ int64) {
	if k := l.find(e.Link); k != nil {
		k.wants, k.restUntil = e.Wants, 0
	}
}

func (e Returned) apply(l *Ledger, now int64) {
	k := l.find(e.Link)
	if k == nil {
		return
	}
	n := max(min(e.N, k.granted), 0)
	k.granted -= n
	l.idle += n
	if k.revoking = false; n == 0 {
		k.restUntil = now + l.cfg.Rest
	}
}

func (e Assigned) apply(l *Ledger, now int64) {
	k := l.find(e.Link)
	if k == nil || k.granted == 0 {
		Resent{e.Task}.apply(l, now)
		return
	}
	k.restUntil = 0
	if l.Holds(e.Task) {
		Dropped{e.Link}.apply(l, now)
		return
	}
	k.granted--
	l.taken(1)
	l.held.Add(e.Task)
	l.queued[e.Task] = covered
}

func (e Resent) apply(l *Ledger, _ int64) {
	switch {
	case l.Holds(e.Task):
		return
	case l.idle > 0:
		l.idle--
		l.taken(1)
		l.queued[e.Task] = covered
	case len(l.overcommitted) < l.announced:
		l.overcommitted = append(l.overcommitted, e.Task)
		l.queued[e.Task] = uncovered
	default: // the worker announced less than it holds, and announces less when it has finished
		l.queued[e.Task] = uncovered
	}
	l.held.Add(e.Task)
}

func (e Dropped) apply(l *Ledger, _ int64) {
	if k := l.find(e.Link); k != nil && k.granted > 0 {
		k.granted--
		l.idle++
		k.restUntil = 0
	}
}

func (e Begun) apply(l *Ledger, _ int64) { delete(l.queued, e.Task) }

func (e Undelivered) apply(l *Ledger, now int64) {
	by, queued := l.queued[e.Task]
	if !queued {
		return
	}
	delete(l.queued, e.Task)
	Finished(e).apply(l, now)
	if by == covered {
		l.announced++
		l.idle++
		return
	}
	for i, t := range l.overcommitted {
		if t == e.Task {
			l.overcommitted = append(l.overcommitted[:i], l.overcommitted[i+1:]...)
			return
		}
	}
}

func (e Finished) apply(l *Ledger, _ int64) { l.held.Remove(e.Task) }
