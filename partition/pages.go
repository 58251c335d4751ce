package partition

import (
	"cmp"
	"slices"
)

// MergePages merges one page of each partition, ascending by key, into the page of all: at most limit elements, and the key
// behind which the next page begins, "" at the end. A partition's cursor is up to where it has looked: "" at its end.
// Behind the least cursor nothing is known to be next, so it is left to the next page. It keeps nothing of pages.
func MergePages[T any](pages [][]T, cursors []string, key func(T) string, limit int) (page []T, cursor string) {
	for _, c := range cursors {
		if c != "" && (cursor == "" || c < cursor) {
			cursor = c
		}
	}
	page = slices.Concat(pages...)
	slices.SortFunc(page, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	if cursor != "" {
		page = slices.DeleteFunc(page, func(t T) bool { return key(t) > cursor })
	}
	if len(page) > limit {
		clear(page[limit:])
		page = page[:limit]
		cursor = key(page[limit-1])
	}
	return page, cursor
}
