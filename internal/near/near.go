// Package near guesses the intended name for one that does not exist: the most similar existing name. It
// makes the same guess for the same names in the same order, and none when no name is similar enough. It
// stores nothing, so a crash loses nothing.
package near

import "strings"

// maxWord bounds the words that are compared, in bytes: the comparison is quadratic.
const maxWord = 64

// Word is the one of names that is most like word, the first of several; "" if none is like it. Case and
// the signs '_' and '-' count for nothing.
func Word(word string, names []string) string {
	folded := fold(word)
	if folded == "" || len(folded) > maxWord {
		return ""
	}
	best, least := "", min(2, len(folded)/2)+1
	for _, name := range names {
		f := fold(name)
		if len(f) > maxWord || len(f)-len(folded) >= least || len(folded)-len(f) >= least {
			continue
		}
		if d := distance(folded, f); d < least {
			best, least = name, d
		}
	}
	return best
}

// Hint is "; did you mean …?" for the one of names that is most like word, or "".
func Hint(word string, names []string) string {
	if name := Word(word, names); name != "" && name != word {
		return `; did you mean "` + name + `"?`
	}
	return ""
}

func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
}

// distance counts the insertions, deletions and replacements of bytes, and the swaps of neighbours, that
// change a into b.
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
