package auth

import (
	"net/http"

	"google.golang.org/grpc/codes"

	"perdure/api"
)

// openPaths are those of the HTTP port that ask for no token: process supervisors have none.
var openPaths = map[string]bool{"/healthz": true, "/readyz": true}

// readPaths need a token that may read, in whichever namespace. Every other path needs an admin of all.
var readPaths = map[string]bool{"/": true, "/metrics": true}

// HTTP wraps a handler: health is open, metrics need a token that may read, everything else (the profiles)
// one that is admin in all namespaces. It compares paths as they arrive, so no detour in a path bypasses the
// check.
func (g *Guard) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d := g.checkRequest(r); d != nil {
			g.refusals.note(d, r.RemoteAddr, r.Method+" "+shorten(r.URL.Path))
			status := http.StatusForbidden
			if api.Code(d.err.Reason) == codes.Unauthenticated {
				status = http.StatusUnauthorized
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			http.Error(w, d.err.Error(), status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Guard) checkRequest(r *http.Request) *denial {
	path := r.URL.Path
	if openPaths[path] {
		return nil
	}
	token, d := bearer(r.Header.Values("Authorization"))
	if d != nil {
		return d
	}
	p, d := g.authenticate(token)
	if d != nil {
		return d
	}
	if readPaths[path] {
		return authorize(p, path, Read, "")
	}
	return authorize(p, shorten(path), Admin, AllNamespaces)
}
