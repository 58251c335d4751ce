package retention

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"perdure/internal/days"
)

// Forever is the word for a retention without an end.
const Forever = "forever"

// LeastRetention is the shortest retention: until then a repeated start must find the execution of the first.
const LeastRetention = 10 * time.Minute

// forever marks a rule without an end.
const forever = time.Duration(-1)

// Policy says for how long what has ended is kept. The zero value keeps everything.
type Policy struct {
	otherwise time.Duration
	rules     map[string]time.Duration // by NAMESPACE or NAMESPACE/FUNCTION
}

// ParsePolicy reads rules: "30d" for all, "billing=7d" for a namespace, "billing/charge=forever" for a function in it. The most
// specific one counts; without one for all, everything else is kept.
func ParsePolicy(rules []string) (Policy, error) {
	p := Policy{otherwise: forever, rules: map[string]time.Duration{}}
	for i, rule := range rules {
		scope, text, scoped := strings.Cut(rule, "=")
		if !scoped {
			scope, text = "", rule
		}
		age := forever
		if text != Forever {
			var err error
			if age, err = days.Parse(text); err != nil {
				return Policy{}, fmt.Errorf("%q: %w, or %s", rule, err, Forever)
			}
			if age < LeastRetention {
				return Policy{}, fmt.Errorf("%q: at least 10m: until then a repeated start must find the execution of the first", rule)
			}
		}
		namespace, function, ofFunction := strings.Cut(scope, "/")
		switch {
		case scoped && (namespace == "" || ofFunction && function == ""):
			return Policy{}, fmt.Errorf("%q: written as AGE, NAMESPACE=AGE or NAMESPACE/FUNCTION=AGE", rule)
		case scoped:
			if _, twice := p.rules[scope]; twice {
				return Policy{}, fmt.Errorf("%q: there are two rules for %s", rule, scope)
			}
			p.rules[scope] = age
		case p.otherwise != forever && i > 0:
			return Policy{}, fmt.Errorf("%q: there are two rules for everything", rule)
		default:
			p.otherwise = age
		}
	}
	return p, nil
}

// Of is how long an execution of a function is kept after its end; false for ever. A promise of no execution has the
// function "".
func (p Policy) Of(namespace, function string) (time.Duration, bool) {
	age, ok := time.Duration(0), false
	if function != "" {
		age, ok = p.rules[namespace+"/"+function]
	}
	if !ok {
		age, ok = p.rules[namespace]
	}
	if !ok {
		age = p.otherwise
	}
	return age, p.rules != nil && age != forever
}

// least is the shortest time for which anything of a namespace is kept; false for ever.
func (p Policy) least(namespace string) (time.Duration, bool) {
	least, limited := p.Of(namespace, "")
	for scope, age := range p.rules {
		if strings.HasPrefix(scope, namespace+"/") && age != forever && (!limited || age < least) {
			least, limited = age, true
		}
	}
	return least, limited
}

// at is the policy at a time of the state's clock.
type at struct {
	p   Policy
	now int64
}

// Of implements query.Before.
func (x at) Of(ns, function string) (int64, bool) {
	age, limited := x.p.Of(ns, function)
	return x.now - age.Milliseconds(), limited
}

// Most implements query.Before.
func (x at) Most(ns string) (int64, bool) {
	age, limited := x.p.least(ns)
	return x.now - age.Milliseconds(), limited
}

// Rules writes the policy as its setting, the rule for everything first; empty if everything is kept.
func (p Policy) Rules() (rules []string) {
	if p.keepsAll() {
		return nil
	}
	for _, scope := range slices.Sorted(maps.Keys(p.rules)) {
		rules = append(rules, scope+"="+formatAge(p.rules[scope]))
	}
	return append([]string{formatAge(p.otherwise)}, rules...)
}

func formatAge(age time.Duration) string {
	if age == forever {
		return Forever
	}
	return days.Format(age)
}

// keepsAll reports whether nothing is ever purged.
func (p Policy) keepsAll() bool {
	if p.rules == nil {
		return true
	}
	for _, age := range p.rules {
		if age != forever {
			return false
		}
	}
	return p.otherwise == forever
}
