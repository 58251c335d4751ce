package partition

import (
	"fmt"
	"slices"
	"testing"
)

// A page of all partitions ends where one of them has not looked any further, or at the limit.
func TestMergePages(t *testing.T) {
	for _, c := range []struct {
		pages   [][]string
		cursors []string
		limit   int
		want    []string
		cursor  string
	}{
		{nil, nil, 3, nil, ""},
		{[][]string{{}, {}}, []string{"", ""}, 3, nil, ""},
		{[][]string{{"b", "d"}, {"a", "c"}}, []string{"", ""}, 5, []string{"a", "b", "c", "d"}, ""},
		{[][]string{{"b", "d"}, {"a", "c"}}, []string{"", ""}, 4, []string{"a", "b", "c", "d"}, ""},
		{[][]string{{"b", "d"}, {"a", "c"}}, []string{"", ""}, 3, []string{"a", "b", "c"}, "c"},
		{[][]string{{"b", "e"}, {"a", "c"}}, []string{"e", "d"}, 9, []string{"a", "b", "c"}, "d"},
		{[][]string{{"b", "e"}, {"a", "c"}}, []string{"e", "c"}, 2, []string{"a", "b"}, "b"},
		{[][]string{{"b"}, {}}, []string{"", "a"}, 9, nil, "a"},
	} {
		page, cursor := MergePages(c.pages, c.cursors, func(s string) string { return s }, c.limit)
		if !slices.Equal(page, c.want) || cursor != c.cursor {
			t.Errorf("%s: %q, %q, want %q, %q", fmt.Sprint(c.pages, c.cursors, c.limit), page, cursor, c.want, c.cursor)
		}
	}
}
