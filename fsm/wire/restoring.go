package wire

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// RuleRestoring is the rule that a refusal names while a partition is being restored.
const RuleRestoring = "restoring"

// Restoring refuses a request to a partition that is being restored.
func Restoring(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_TRY_LATER, "partition %d is being restored from a backup", partition).With("rule", RuleRestoring)
}
