// Package bytesize reads and writes numbers of bytes, such as 64MiB or 1GB.
//
// It promises that what Format writes, Parse reads as the same number. KiB, MiB and GiB are powers of 1024; KB, MB and GB
// are powers of 1000. Numbers are whole and not negative. A size that does not fit an int64 is refused, and never wraps.
// It holds no state.
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteUnits lists the units of a size, the binary ones first, from large to small. Format takes the first
// binary unit that divides the size, Parse the first unit that ends the text.
var byteUnits = []struct {
	name string
	size int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// binaryUnits is the number of binary units in byteUnits.
const binaryUnits = 3

// Parse reads a size such as 64MiB, 1GB or 512.
func Parse(text string) (int64, error) {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range byteUnits {
		if rest, found := strings.CutSuffix(strings.ToLower(number), strings.ToLower(u.name)); found {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("not a size; write whole bytes, or a whole number of KiB, MiB or GiB, as in 64MiB")
	}
	if n > math.MaxInt64/unit {
		return 0, fmt.Errorf("too large a size")
	}
	return n * unit, nil
}

// Format writes a size in the largest binary unit that divides it.
func Format(n int64) string {
	for _, u := range byteUnits[:binaryUnits] {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
