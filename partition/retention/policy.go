package retention

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"perdure/internal/days"
)

// Forever is the word for a retention without an end, KeepAll for a count without a bound.
const (
	Forever = "forever"
	KeepAll = "keep all"
)

// LeastRetention is the shortest retention: until then a repeated start must find the execution of the first.
const LeastRetention = 10 * time.Minute

// MostKept is the largest count of a rule.
const MostKept = 1_000_000

// forever marks a rule without an end, keepAll one without a count.
const (
	forever = time.Duration(-1)
	keepAll = 0
)

// Policy says for how long what has ended is kept, and how much of it. What is over by either is purged. The zero value
// keeps everything.
type Policy struct {
	ages   scoped[time.Duration]
	counts scoped[int]
	read   bool
}

// scoped are rules of one sort: one for everything, and those by NAMESPACE or NAMESPACE/FUNCTION.
type scoped[T comparable] struct {
	otherwise T
	set       bool // otherwise is a rule
	rules     map[string]T
}

// of is the most specific rule's value.
func (s *scoped[T]) of(namespace, function string) T {
	if function != "" {
		if v, ok := s.rules[namespace+"/"+function]; ok {
			return v
		}
	}
	if v, ok := s.rules[namespace]; ok {
		return v
	}
	return s.otherwise
}

// add adds a rule; false if the scope has one of this sort.
func (s *scoped[T]) add(scope string, v T) bool {
	if scope == "" {
		if s.set {
			return false
		}
		s.otherwise, s.set = v, true
		return true
	}
	if _, twice := s.rules[scope]; twice {
		return false
	}
	s.rules[scope] = v
	return true
}

// only reports whether no rule has another value.
func (s *scoped[T]) only(none T) bool {
	for _, v := range s.rules {
		if v != none {
			return false
		}
	}
	return s.otherwise == none
}

// ParsePolicy reads rules: "30d" for all, "billing=7d" for a namespace, "billing/charge=forever" for a function in it, and
// "keep 1000" or "billing/charge=keep 1000" likewise for how many of each function, and of the promises of no execution, are kept in
// each namespace. Of the ages and of the counts the most specific one holds; without one for all, everything else is kept.
func ParsePolicy(rules []string) (Policy, error) {
	p := Policy{read: true, ages: scoped[time.Duration]{forever, false, map[string]time.Duration{}}, counts: scoped[int]{keepAll, false, map[string]int{}}}
	for _, rule := range rules {
		scope, text, has := strings.Cut(rule, "=")
		if !has {
			scope, text = "", rule
		}
		namespace, function, ofFunction := strings.Cut(scope, "/")
		if has && (namespace == "" || ofFunction && function == "") {
			return Policy{}, fmt.Errorf("%q: written as RULE, NAMESPACE=RULE or NAMESPACE/FUNCTION=RULE, where RULE is an age or keep N", rule)
		}
		ok, err := p.add(scope, text)
		if err != nil {
			return Policy{}, fmt.Errorf("%q: %w", rule, err)
		}
		if !ok {
			return Policy{}, fmt.Errorf("%q: there are two such rules for %s", rule, cmp.Or(scope, "everything"))
		}
	}
	return p, nil
}

// add reads one rule; ok is false if the scope has one of this sort.
func (p *Policy) add(scope, text string) (ok bool, err error) {
	if n, counts := strings.CutPrefix(text, "keep "); counts {
		count := keepAll
		if text != KeepAll {
			if count, err = strconv.Atoi(n); err != nil || count < 1 || count > MostKept {
				return false, fmt.Errorf("keep 1 to %d, or %s", MostKept, KeepAll)
			}
		}
		return p.counts.add(scope, count), nil
	}
	age := forever
	if text != Forever {
		if age, err = days.Parse(text); err != nil {
			return false, fmt.Errorf("%w, %s, or keep N", err, Forever)
		}
		if age < LeastRetention {
			return false, errors.New("at least 10m: until then a repeated start must find the execution of the first")
		}
	}
	return p.ages.add(scope, age), nil
}

// Of is how long an execution of a function is kept after its end; false for ever. A promise of no execution has the
// function "".
func (p Policy) Of(namespace, function string) (time.Duration, bool) {
	age := p.ages.of(namespace, function)
	return age, p.read && age != forever
}

// Count is how many executions of a function are kept after their end; false for all of them. Promises of no execution have the
// function "".
func (p Policy) Count(namespace, function string) (int, bool) {
	n := p.counts.of(namespace, function)
	return n, p.read && n != keepAll
}

// countsIn reports whether executions of a namespace may have a count.
func (p Policy) countsIn(namespace string) bool {
	if _, ok := p.Count(namespace, ""); ok {
		return true
	}
	for scope, n := range p.counts.rules {
		if n != keepAll && strings.HasPrefix(scope, namespace+"/") {
			return true
		}
	}
	return false
}

// least is the shortest time for which anything of a namespace is kept; false for ever.
func (p Policy) least(namespace string) (time.Duration, bool) {
	least, limited := p.Of(namespace, "")
	for scope, age := range p.ages.rules {
		if strings.HasPrefix(scope, namespace+"/") && age != forever && (!limited || age < least) {
			least, limited = age, true
		}
	}
	return least, limited
}

// at is the policy at a time of the state's clock, with the ends of the newest executions; nil for none.
type at struct {
	p      Policy
	now    int64
	newest *newest
}

// Of implements query.Before.
func (x at) Of(ns, function string) (int64, bool) {
	age, limited := x.p.Of(ns, function)
	before := x.now - age.Milliseconds()
	if !limited {
		before = math.MinInt64
	}
	if end, counted := x.newest.before(ns, function); counted {
		return max(before, min(end, x.now-LeastRetention.Milliseconds())), true
	}
	return before, limited
}

// Most implements query.Before.
func (x at) Most(ns string) (int64, bool) {
	age, limited := x.p.least(ns)
	before := x.now - age.Milliseconds()
	if x.newest != nil && x.p.countsIn(ns) {
		before, limited = x.now-LeastRetention.Milliseconds(), true
	}
	return before, limited
}

// Rules writes the policy as its setting, the rules for everything first; empty if everything is kept.
func (p Policy) Rules() (rules []string) {
	if p.keepsAll() {
		return nil
	}
	rules = append(rules, formatAge(p.ages.otherwise))
	if n := p.counts.otherwise; n != keepAll {
		rules = append(rules, formatCount(n))
	}
	for _, scope := range slices.Sorted(maps.Keys(p.ages.rules)) {
		rules = append(rules, scope+"="+formatAge(p.ages.rules[scope]))
	}
	for _, scope := range slices.Sorted(maps.Keys(p.counts.rules)) {
		rules = append(rules, scope+"="+formatCount(p.counts.rules[scope]))
	}
	return rules
}

func formatCount(n int) string {
	if n == keepAll {
		return KeepAll
	}
	return "keep " + strconv.Itoa(n)
}

func formatAge(age time.Duration) string {
	if age == forever {
		return Forever
	}
	return days.Format(age)
}

// keepsAll reports whether nothing is ever purged.
func (p Policy) keepsAll() bool { return !p.read || p.ages.only(forever) && p.counts.only(keepAll) }
