package auth

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// Reasons of refusals, as the counter and the log have them.
const (
	reasonNoToken      = "no_token"
	reasonBadToken     = "bad_token"
	reasonUnknownToken = "unknown_token"
	reasonBadSignature = "bad_signature"
	reasonExpired      = "expired"
	reasonClaims       = "claims"
	reasonRole         = "role"
	reasonNamespace    = "namespace"
	reasonMethod       = "method"
)

var reasons = []string{reasonNoToken, reasonBadToken, reasonUnknownToken, reasonBadSignature, reasonExpired, reasonClaims,
	reasonRole, reasonNamespace, reasonMethod}

// A denial is a refusal: the error that the caller gets, and this node's log attributes. It never holds the
// token.
type denial struct {
	reason string
	name   string // of the token, if it is known
	err    *api.Error
}

func unauthenticated(reason, format string, args ...any) *denial {
	return &denial{reason: reason, err: api.Errorf(perdurev1.Reason_REASON_UNAUTHENTICATED, format, args...)}
}

func forbidden(reason string, p Principal, format string, args ...any) *denial {
	return &denial{reason: reason, name: p.Name,
		err: api.Errorf(perdurev1.Reason_REASON_PERMISSION_DENIED, format, args...).With("token", p.Name)}
}

func (d *denial) with(key, value string) *denial {
	_ = d.err.With(key, value)
	return d
}

// maxRefusalsLogged is how many refusals are logged in one second; the next line that is logged says how
// many were left out. The counter misses none.
const maxRefusalsLogged = 10

// refusals logs and counts.
type refusals struct {
	log     *slog.Logger
	now     func() time.Time
	counted *prometheus.CounterVec

	mu      sync.Mutex
	second  time.Time
	logged  int
	omitted int
}

func newRefusals(opts Options) (*refusals, error) {
	r := &refusals{log: opts.Logger, now: opts.Now, counted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "perdure", Subsystem: "auth", Name: "refused_total",
		Help: "Calls that were refused for want of a token that allows them, by reason."}, []string{"reason"})}
	for _, reason := range reasons {
		r.counted.WithLabelValues(reason)
	}
	if opts.Registerer != nil {
		if err := opts.Registerer.Register(r.counted); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *refusals) note(d *denial, from, method string) {
	r.counted.WithLabelValues(d.reason).Inc()
	now := r.now()
	r.mu.Lock()
	if since := now.Sub(r.second); since < 0 || since >= time.Second {
		r.second, r.logged = now, 0
	}
	if r.logged++; r.logged > maxRefusalsLogged {
		r.omitted++
		r.mu.Unlock()
		return
	}
	omitted := r.omitted
	r.omitted = 0
	r.mu.Unlock()
	args := []any{"event", "auth_refused", "reason", d.reason, "peer", from, "method", method}
	if d.name != "" {
		args = append(args, "token", d.name)
	}
	if namespace := d.err.Meta["namespace"]; namespace != "" {
		args = append(args, "namespace", namespace)
	}
	if omitted > 0 {
		args = append(args, "omitted", omitted)
	}
	r.log.Warn("call refused", args...)
}
