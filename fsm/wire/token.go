package wire

import (
	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/recovery"
)

// TokenOf refuses a token that an earlier incarnation than the promise's gave away: it was for a promise that
// is gone. An incarnation that keeps the promise of a former one gives away tokens of its own number. 0 is an
// id, and no token.
func TokenOf(ns string, p recovery.Promise, incarnation uint64) *api.Error {
	if incarnation == 0 || incarnation >= p.Incarnation {
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_PROMISE_NOT_FOUND,
		"no promise %q of incarnation %d in namespace %q, only that of incarnation %d", p.ID, incarnation, ns, p.Incarnation).
		With("namespace", ns).With("id", p.ID)
}
