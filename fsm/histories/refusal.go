package histories

import (
	"errors"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// RuleExists is the rule of a refusal by an *ExistsError.
const RuleExists = "history_exists"

// Refusal is the answer to a request that moves a tree, given an error of this package. It panics with a state.Fault for any
// other error.
func Refusal(ns, tree string, err error) *api.Error {
	var (
		broken *Error
		exists *ExistsError
	)
	switch {
	case errors.As(err, &exists):
		return api.Errorf(perdurev1.Reason_REASON_ID_CONFLICT, "history of %q: %q %v", tree, exists.ID, err).
			With("namespace", ns).With("id", exists.ID).With("rule", RuleExists)
	case errors.As(err, &broken):
		reason := perdurev1.Reason_REASON_RULE_BROKEN
		if broken.Rule == RuleBusy {
			reason = perdurev1.Reason_REASON_TRY_LATER
		}
		return api.Errorf(reason, "history of %q: %v", tree, err).
			With("namespace", ns).With("id", broken.ID).With("rule", broken.Rule)
	}
	panic(state.Fault{Err: err})
}
