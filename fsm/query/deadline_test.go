package query

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// A search from the previous position finds what a full search finds, while deadlines come and go. It may miss a
// deadline until that is announced.
func TestDeadlineSearch(t *testing.T) {
	late := 0
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		st := state.NewMemReader()
		var search DeadlineSearch
		var there [][]byte
		earlier := func(a, b int64) int64 { // 0 is none
			if a == 0 || b != 0 && b < a {
				return b
			}
			return a
		}
		unannounced := int64(0)
		for i := range 1 + draw("rounds", 80) {
			added := unannounced
			unannounced = 0
			for range draw("adds", 4) {
				at, kind := int64(1+draw("at", 60)), keys.DeadlineKinds[draw("kind", len(keys.DeadlineKinds))]
				key := keys.DeadlineOf(kind, at, "ns", fmt.Sprint("e", i))
				st.Apply([]state.Write{{Key: key, Value: []byte{}}})
				there = append(there, key)
				if draw("late", 5) == 0 {
					unannounced = earlier(unannounced, at)
				} else {
					added = earlier(added, at)
				}
			}
			for len(there) > 0 && draw("remove", 3) == 0 {
				n := draw("which", len(there))
				st.Apply([]state.Write{{Key: there[n]}})
				there = append(there[:n], there[n+1:]...)
			}
			want, any := state.Never, false
			_ = st.Scan(nil, nil, func(key, _ []byte) bool {
				_, at, _, _, _ := keys.ParseDeadline(key)
				want, any = min(want, at), true
				return true
			})
			got, ok, err := search.Next(st, added)
			if err == nil && unannounced != 0 && (ok != any || got != want) {
				late++
				got, ok, err = search.Next(st, unannounced)
				unannounced = 0
			}
			if err != nil || ok != any || ok && got != want {
				t.Fatalf("found %d (%t), %v, the earliest is %d (%t)", got, ok, err, want, any)
			}
			if at, ok, err := NextExpiration(st); err != nil || ok != any || ok && at != want {
				t.Fatalf("NextExpiration is %d (%t, %v), the earliest is %d (%t)", at, ok, err, want, any)
			}
		}
	})
	if late == 0 {
		t.Error("no deadline was ever announced late")
	}
}
