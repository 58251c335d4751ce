package report

import (
	"fmt"
	"strings"

	"perdure/bench/suite"
)

// Verdicts shows what a comparison says. over names its sides, as "new over old".
func Verdicts(over string, verdicts []suite.Verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | median | least to most | at least, by the sign test | verdict |\n| --- | --- | --- | --- | --- |\n", over)
	for _, v := range verdicts {
		low, _, high := suite.Spread(v.Ratios)
		verdict := "shown only"
		switch {
		case v.Regression:
			verdict = "regression"
		case v.Judged:
			verdict = fmt.Sprintf("no regression beyond %g %%", 100*v.Tolerance)
		}
		least := "–" // too few rounds
		if v.Low > 0 {
			least = fmt.Sprintf("%.3f", v.Low)
		}
		fmt.Fprintf(&b, "| %s | %.3f | %.3f to %.3f | %s | %s |\n", v.Figure, v.Median, low, high, least, verdict)
	}
	return b.String()
}
