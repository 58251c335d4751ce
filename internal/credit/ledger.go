package credit

import "fmt"

// Config is how a ledger decides. Times are in one unit of the caller's clock.
type Config struct {
	// SilentAfter is the time without a message after which a worker is silent; 0: it never is.
	SilentAfter int64
	// Rest is the time for which a link is not asked again that had no credit to spare.
	Rest int64
}

// Ledger splits a worker's capacity over links; see the package's comment. New makes one.
type Ledger struct {
	cfg   Config
	heard int64
	// announced = sum of links[i].granted + idle
	announced, idle int
	links           []*link // Home first
	// overcommitted are tasks, the oldest first, that the next credit to come back covers:
	//
	//	len(overcommitted) <= announced - idle
	overcommitted []Task
	// held is the last version of each execution that is the worker's. queued are the tasks that were not sent to the
	// worker yet: whether they have used credit.
	held   Held
	queued map[Task]cover
	next   int // index of the first link to consider in the next round of grants
	waking bool
	out    []Action
}

type link struct {
	name      Link
	granted   int
	leads     bool
	wants     bool
	revoking  bool
	restUntil int64
}

// needs reports whether tasks wait for credit at a link that has none.
func (k *link) needs() bool { return k.wants && k.granted == 0 }

type cover uint8

const (
	uncovered cover = iota
	covered
)

// New makes a ledger of a worker that was heard from now. held are the tasks that the worker reports to hold.
func New(cfg Config, now int64, held ...Task) *Ledger {
	return &Ledger{cfg: cfg, heard: now, held: HeldBy(held...), queued: map[Task]cover{}}
}

// Step takes one event in and answers what to do about it, in this order. An action's answer may be given to
// Step before the next action is carried out.
func (l *Ledger) Step(now int64, e Event) []Action {
	l.out = nil
	e.apply(l, now)
	l.settle(now)
	if Assert {
		if err := l.Check(); err != nil {
			panic(fmt.Sprintf("credit: after %#v: %v", e, err))
		}
	}
	return l.out
}

// Check reports a broken inequality of the ledger.
func (l *Ledger) Check() error {
	granted := 0
	for _, k := range l.links {
		if k.granted < 0 {
			return fmt.Errorf("link %q has %d units", k.name, k.granted)
		}
		granted += k.granted
	}
	switch over := len(l.overcommitted); {
	case l.idle < 0:
		return fmt.Errorf("%d units are idle", l.idle)
	case granted+l.idle != l.announced:
		return fmt.Errorf("%d units are granted and %d idle, %d are announced", granted, l.idle, l.announced)
	case over > granted:
		return fmt.Errorf("%d tasks are overcommitted, %d units are granted", over, granted)
	case over > 0 && l.idle > 0:
		return fmt.Errorf("%d tasks are overcommitted while %d units are idle", over, l.idle)
	}
	return nil
}

// Holds reports whether a task is the worker's: the worker reported it, or a node assigned it.
func (l *Ledger) Holds(t Task) bool { return l.held.Has(t) }

// Announced is the capacity that no task has taken.
func (l *Ledger) Announced() int { return l.announced }

// Overcommitted is the number of tasks that the next credit to come back covers.
func (l *Ledger) Overcommitted() int { return len(l.overcommitted) }

// MayExtend reports whether the next capacity may go to any link, as Extended: no link needs credit more, and no task
// is overcommitted.
func (l *Ledger) MayExtend() bool {
	for _, k := range l.links {
		if k.needs() {
			return false
		}
	}
	return len(l.overcommitted) == 0
}

// Granted is the credit of a link.
func (l *Ledger) Granted(name Link) int {
	if k := l.find(name); k != nil {
		return k.granted
	}
	return 0
}

func (l *Ledger) find(name Link) *link {
	for _, k := range l.links {
		if k.name == name {
			return k
		}
	}
	return nil
}

func (l *Ledger) silent(now int64) bool {
	return l.cfg.SilentAfter > 0 && now-l.heard > l.cfg.SilentAfter
}

// taken takes n units of capacity that a task has used or the worker has taken back. If no capacity is left
// to cover overcommitted tasks, the ledger forgives them: the worker has more tasks than it announced.
func (l *Ledger) taken(n int) {
	l.announced -= n
	l.overcommitted = l.overcommitted[:min(len(l.overcommitted), l.announced)]
}

// settle covers tasks with idle credit, grants what is left, and asks for credit that is needed elsewhere.
func (l *Ledger) settle(now int64) {
	for l.idle > 0 && len(l.overcommitted) > 0 {
		first := l.overcommitted[0]
		l.overcommitted = l.overcommitted[1:]
		if _, queued := l.queued[first]; queued {
			l.queued[first] = covered
		}
		l.idle--
		l.taken(1)
	}
	if !l.silent(now) {
		l.grant()
		l.balance(now)
	}
}

// grant grants idle credit: round-robin to the links that need some; otherwise to the link with the least, of
// nodes that lead.
func (l *Ledger) grant() {
	if l.idle == 0 || len(l.links) == 0 {
		return
	}
	l.next++
	for l.idle > 0 {
		var to *link
		rivals, needy := 0, false
		for i := range l.links {
			k := l.links[(l.next+i)%len(l.links)]
			switch {
			case k.needs() && !needy:
				to, rivals, needy = k, 1, true
			case k.needs() != needy || !needy && !k.leads:
			case !needy && (to == nil || k.granted < to.granted):
				to = k
				rivals++
			default:
				rivals++
			}
		}
		if to == nil {
			to, rivals = l.links[0], 1
		}
		n := (l.idle + rivals - 1) / rivals
		l.idle -= n
		to.granted += n
		to.restUntil = 0
		l.out = append(l.out, Grant{to.name, n})
	}
}

// balance asks links that need no credit for some: one for each link that needs credit, and one for the tasks that are
// overcommitted.
func (l *Ledger) balance(now int64) {
	open, needy := 0, 0
	for _, k := range l.links {
		if k.needs() {
			needy++
		}
		if k.revoking {
			open--
		}
	}
	if open += needy; len(l.overcommitted) > 0 {
		open++
	}
	for ; open > 0; open-- {
		from, rested := l.richest(now)
		if from == nil {
			if rested > now && !l.waking {
				l.waking = true
				l.out = append(l.out, Wake{rested})
			}
			return
		}
		n := len(l.overcommitted)
		if needy > 0 {
			n = max(n, (from.granted+1)/2)
		}
		if l.revoke(from, n); from.name == Home {
			return // it answers at once, and then less may be needed
		}
	}
}

// fund asks for n units, for a link that opens: Home, or else the link with most, which keeps n of its own.
func (l *Ledger) fund(n int) {
	var from *link
	for _, k := range l.links {
		switch {
		case k.name == Home:
			if !k.revoking && n > 0 && k.granted > 0 {
				l.revoke(k, n)
			}
			return
		case from == nil || k.granted > from.granted:
			from = k
		}
	}
	if from != nil && !from.revoking && n > 0 && from.granted > n {
		l.revoke(from, min(n, from.granted-n))
	}
}

func (l *Ledger) revoke(k *link, n int) {
	k.revoking = true
	l.out = append(l.out, Revoke{k.name, min(n, k.granted)})
}

// richest is the link to be asked for credit: Home, or the one with most; nil if none can be asked. Then rested is when
// one can be, if that is a matter of time.
func (l *Ledger) richest(now int64) (to *link, rested int64) {
	for _, k := range l.links {
		switch {
		case k.revoking || k.wants || k.granted == 0:
		case k.restUntil > now:
			if rested == 0 || k.restUntil < rested {
				rested = k.restUntil
			}
		case k.name == Home:
			return k, 0
		case to == nil || k.granted > to.granted:
			to = k
		}
	}
	return to, rested
}
