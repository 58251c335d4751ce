package quota

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits are what one namespace may use of the cluster; 0 is no limit.
type Limits struct {
	// Open bounds the open executions, children included, Bytes the stored keys and values.
	Open  int
	Bytes int64
	// Starts bounds the executions that clients start, per second.
	Starts int
}

// Quotas are the limits of namespaces. The zero value has none.
type Quotas struct {
	of map[string]Limits // by namespace; everyOther for all others
}

// everyOther is how a setting names the namespaces that it does not name.
const everyOther = "*"

// Parse reads settings as "billing=open:1000", "bytes:10GiB", "starts:50/s": one without a namespace belongs to the namespace
// named last. "*" names every namespace without settings of its own.
func Parse(settings []string) (Quotas, error) {
	q := Quotas{of: map[string]Limits{}}
	last := ""
	for _, setting := range settings {
		namespace, text, named := strings.Cut(setting, "=")
		switch {
		case named && namespace == "":
			return Quotas{}, fmt.Errorf("%q: names no namespace", setting)
		case named:
			last = namespace
		case last == "":
			return Quotas{}, fmt.Errorf("%q: written as NAMESPACE=open:N,bytes:SIZE,starts:N/s", setting)
		default:
			text = setting
		}
		limits := q.of[last]
		if err := limits.set(text); err != nil {
			return Quotas{}, fmt.Errorf("%q: %w", setting, err)
		}
		q.of[last] = limits
	}
	return q, nil
}

// set reads one limit.
func (l *Limits) set(text string) error {
	what, value, _ := strings.Cut(text, ":")
	twice := false
	var err error
	switch what {
	case kindOpen:
		twice = l.Open != 0
		l.Open, err = strconv.Atoi(value)
		if err == nil && l.Open < 1 {
			err = fmt.Errorf("at least 1")
		}
	case kindBytes:
		twice = l.Bytes != 0
		l.Bytes, err = parseBytes(value)
	case kindStarts:
		n, perSecond := strings.CutSuffix(value, "/s")
		twice = l.Starts != 0
		l.Starts, err = strconv.Atoi(n)
		if err == nil && (!perSecond || l.Starts < 1) {
			err = fmt.Errorf("a whole number of at least 1 and /s")
		}
	default:
		return fmt.Errorf("open:N, bytes:SIZE or starts:N/s")
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case twice:
		return fmt.Errorf("%s is set twice", what)
	}
	return nil
}

// units are the suffixes of sizes.
var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}, {"", 1}}

func parseBytes(s string) (int64, error) {
	for _, u := range units {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil || v < 1 || v > math.MaxInt64/u.bytes {
				break
			}
			return v * u.bytes, nil
		}
	}
	return 0, fmt.Errorf("%q is no size: write 512MiB or 10GiB", s)
}

// formatBytes writes a size with the largest unit that divides it.
func formatBytes(n int64) string {
	for _, i := range []int{3, 2, 1, 0} {
		if u := units[i]; n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// Of returns a namespace's limits.
func (q Quotas) Of(namespace string) Limits {
	if l, ok := q.of[namespace]; ok {
		return l
	}
	return q.of[everyOther]
}

// None reports whether no namespace has a limit.
func (q Quotas) None() bool { return len(q.of) == 0 }

// Rules writes the quotas as their setting.
func (q Quotas) Rules() (out []string) {
	for namespace, l := range q.of { //lint:sorted sorted before use
		var parts []string
		if l.Open > 0 {
			parts = append(parts, kindOpen+":"+strconv.Itoa(l.Open))
		}
		if l.Bytes > 0 {
			parts = append(parts, kindBytes+":"+formatBytes(l.Bytes))
		}
		if l.Starts > 0 {
			parts = append(parts, kindStarts+":"+strconv.Itoa(l.Starts)+"/s")
		}
		out = append(out, namespace+"="+strings.Join(parts, ","))
	}
	slices.Sort(out)
	return out
}
