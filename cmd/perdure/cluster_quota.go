package main

import (
	"fmt"
	"strings"

	perdurev1 "perdure/api/perdure/v1"
)

// quotaText says what a namespace uses of its quotas.
func quotaText(u *perdurev1.NamespaceUse) string {
	var parts []string
	if limit := u.GetOpenLimit(); limit > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d open executions", u.GetOpen(), limit))
	}
	if limit := u.GetBytesLimit(); limit > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s stored", bytesText(uint64(max(u.GetBytes(), 0))), bytesText(uint64(limit))))
	}
	if limit := u.GetStartsLimit(); limit > 0 {
		parts = append(parts, fmt.Sprintf("at most %d starts per second", limit))
	}
	if n := u.GetRefused(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused", n))
	}
	return "namespace " + orDash(u.GetNamespace()) + " has " + strings.Join(parts, ", ")
}
