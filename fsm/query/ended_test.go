package query

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// cutoffs says before what time executions have ended for long enough, by namespace and function.
type cutoffs map[string]int64

func (c cutoffs) Of(ns, function string) (int64, bool) {
	ms, ok := c[ns+"/"+function]
	return ms, ok
}

func (c cutoffs) Most(ns string) (most int64, ok bool) {
	for scope, ms := range c {
		if strings.HasPrefix(scope, ns+"/") {
			most, ok = max(most, ms), true
		}
	}
	return most, ok
}

// The search in pieces, which jumps, finds what reading everything finds.
func TestEndedExecutions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := state.NewMemReader()
		before := cutoffs{}
		for _, scope := range []string{"a/f", "a/g", "b/f", "c/g"} {
			if rapid.Bool().Draw(rt, scope) {
				before[scope] = rapid.Int64Range(1, 30).Draw(rt, "before")
			}
		}
		var want []string
		for n := range rapid.IntRange(0, 60).Draw(rt, "executions") {
			ns, function := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "ns"), rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "function")
			class := keys.VisibilityClass(rapid.IntRange(1, 4).Draw(rt, "class"))
			created := rapid.Int64Range(1, 20).Draw(rt, "created")
			closed := created + rapid.Int64Range(0, 15).Draw(rt, "took")
			objectID := fmt.Sprintf("e%d", n)
			if rapid.IntRange(0, 3).Draw(rt, "child") == 0 {
				objectID += ":0"
			}
			value := state.ListingClosed(&state.Header{Function: function, ClosedMS: closed})
			if class == keys.Open {
				value = state.ListingOpen(function)
			}
			r.Apply([]state.Write{{Key: keys.VisibilityOf(ns, class, created, objectID), Value: value}})
			if ms, ok := before.Of(ns, function); ok && closed < ms && class != keys.Open && !strings.Contains(objectID, ":") {
				want = append(want, ns+"/"+objectID)
			}
		}
		got := pass(rt, r, EndedExecutions, before, func(Ended) {})
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Fatalf("found %q, want %q", got, want)
		}
	})
}
