package group

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/admission"
)

func errOverloaded(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "partition %d: too many commands are waiting", partition).
		With("bound", "commands").WithRetryAfterMS(admission.RetryAfterMin.Milliseconds())
}
