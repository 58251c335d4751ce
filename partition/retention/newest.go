package retention

import (
	"container/heap"
	"maps"
	"slices"

	"perdure/fsm/query"
)

// maxEnds bounds the ends that one pass over a partition holds: 8 bytes each. Functions beyond it have their turn in the next pass.
const maxEnds = 1 << 20

// newest holds the ends of the newest executions of each function that has a count, or of the newest promises of each namespace
// that has one, in one partition. A cluster's count is divided: each of its partitions keeps ceil(count/partitions), since ids are
// spread evenly over them.
//
//	sum of len(ends) <= most
type newest struct {
	policy     Policy
	partitions int
	most       int
	// The pass is about the scopes from <= scope < until; an empty until is no bound.
	from, until string
	ends        map[string]*ends
	held        int
}

// ends is a heap of the newest ends of one scope, the earliest first.
type ends struct {
	keep int
	at   int64s
}

type int64s []int64

func (s int64s) Len() int           { return len(s) }
func (s int64s) Less(i, j int) bool { return s[i] < s[j] }
func (s int64s) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *int64s) Push(v any)        { *s = append(*s, v.(int64)) }
func (s *int64s) Pop() any {
	last := len(*s) - 1
	v := (*s)[last]
	*s = (*s)[:last]
	return v
}

func newNewest(p Policy, partitions int, from string) *newest {
	return &newest{policy: p, partitions: max(partitions, 1), most: maxEnds, from: from, ends: map[string]*ends{}}
}

// see takes an execution or a promise into account.
func (x *newest) see(e query.Ended) {
	scope := e.Namespace + "/" + e.Function
	if scope < x.from || x.until != "" && scope >= x.until {
		return
	}
	of := x.ends[scope]
	if of == nil {
		count, limited := x.policy.Count(e.Namespace, e.Function)
		if !limited {
			return
		}
		of = &ends{keep: (count + x.partitions - 1) / x.partitions}
		x.ends[scope] = of
	}
	if len(of.at) == of.keep {
		if e.EndedMS > of.at[0] {
			of.at[0] = e.EndedMS
			heap.Fix(&of.at, 0)
		}
		return
	}
	heap.Push(&of.at, e.EndedMS)
	for x.held++; x.held > x.most && len(x.ends) > 1; {
		x.until = slices.Max(slices.Collect(maps.Keys(x.ends)))
		x.held -= len(x.ends[x.until].at)
		delete(x.ends, x.until)
	}
}

// before is the end of the oldest execution of a function, or of the oldest promise, that is kept; false while there are no more than are kept.
func (x *newest) before(ns, function string) (int64, bool) {
	if x == nil {
		return 0, false
	}
	of := x.ends[ns+"/"+function]
	if of == nil || len(of.at) < of.keep {
		return 0, false
	}
	return of.at[0], true
}
