package resonate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// The bounds of a request.
const (
	// answerTimeout bounds an operation: until then the Store looks for a leader that answers. SDKs give up after 10 s.
	answerTimeout = 8 * time.Second
	// maxRequest bounds a request's bytes: base64 of the largest payload, and what is around it.
	maxRequest = 8 << 20
	// maxRefused bounds what is read of a larger request, so that the caller reads the answer 413 and not a broken
	// connection.
	maxRefused = 64 << 20
	// maxReading bounds the bytes of all requests that are being read or handled.
	maxReading = 64 << 20
	// maxActions bounds the promises that a task awaits, maxHeartbeats the tasks of one heartbeat.
	maxActions    = 10_000
	maxHeartbeats = 100_000
)

// Options of New.
type Options struct {
	Store Store
	// Messages serves GET /poll/{group}/{pid}, the streams of messages to workers. If nil, there is none.
	Messages http.Handler
	// Authenticate finds the holder of a bearer token; an error is answered by 401. If nil, no token is needed.
	Authenticate func(r *http.Request, token string) (Caller, error)
	// NotReady says why the node is not ready to serve, or nil.
	NotReady func() error
	// Origins are the origins of web pages that may call (CORS); "*" is any. Empty: none.
	Origins []string
	// DottedIDs is the compatibility mode of SDKs that join ids with '.' only: the origin of an id ends at its first ':' or
	// '.', and the tags of the lineage are not checked.
	DottedIDs bool
	// Sandbox turns debug mode on: debug requests are served, and requests name their time. Store is the sandbox's. nil:
	// debug requests are answered by 403, and times of requests ignored.
	Sandbox *Sandbox
	// Logger gets answers that could not be encoded; nil for none.
	Logger *slog.Logger
}

// Server answers the protocol's requests. It is an http.Handler for the paths that [Server.Register] names.
type Server struct {
	opts  Options
	store Store
	ids   ids
	log   *slog.Logger
	// reading counts the bytes of requests that are being read or handled; 0 <= reading <= maxReading.
	reading atomic.Int64
}

// New makes a Server. It starts nothing.
func New(opts Options) *Server {
	s := &Server{opts: opts, store: opts.Store, ids: ids{dotted: opts.DottedIDs}, log: opts.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opts.NotReady == nil {
		s.opts.NotReady = func() error { return nil }
	}
	return s
}

// Register adds the protocol's paths to a port's: POST /, /poll/, the probes, and the paths of the protocol before this
// one. They check tokens themselves.
func (s *Server) Register(mux *http.ServeMux) {
	mux.Handle("POST /{$}", s.cors(http.HandlerFunc(s.serve)))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.opts.NotReady(); err != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	for _, path := range []string{"/promises", "/promises/", "/tasks", "/tasks/", "/schedules", "/schedules/"} {
		mux.HandleFunc(path, gone)
	}
	if s.opts.Messages != nil {
		mux.Handle("GET /poll/{group}/{pid}", s.cors(s.authenticated(s.opts.Messages)))
	}
	if len(s.opts.Origins) > 0 {
		mux.Handle("OPTIONS /{$}", s.cors(http.HandlerFunc(preflight)))
		mux.Handle("OPTIONS /poll/{group}/{pid}", s.cors(http.HandlerFunc(preflight)))
	}
}

// gone answers the paths that an earlier version of the protocol had.
func gone(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	fmt.Fprintln(w, `{"error":"this path is of an earlier version of the protocol, POST / has taken its place"}`)
}

// preflight answers a browser that asks what a page may send; the headers are those of cors.
func preflight(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// cors lets pages of the configured origins read the answers.
func (s *Server) cors(next http.Handler) http.Handler {
	if len(s.opts.Origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); origin != "" && (slices.Contains(s.opts.Origins, origin) || slices.Contains(s.opts.Origins, "*")) {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
		}
		next.ServeHTTP(w, r)
	})
}

// authenticated checks the bearer token of the Authorization header, where the server needs one.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Authenticate != nil {
			if _, err := s.opts.Authenticate(r, bearer(r)); err != nil {
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// bearer is the token of the Authorization header; "" without one.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// serve answers POST /.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, release, refusal := s.read(w, r)
	defer release()
	var out response
	if refusal != nil {
		out = refused(envelope{kind: unknownKind, corrID: unknownCorrID}, refusal)
	} else {
		out = s.handle(r, body)
	}
	text, err := out.encode()
	if err != nil {
		s.log.Error("cannot encode an answer", "event", "resonate_encode_failed", "kind", out.Kind, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(out.Head.Status)
	_, _ = w.Write(text) // the caller may be gone
}

// read reads a request's body within the bounds. release gives back what the body reserves.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (body []byte, release func(), refusal *Refusal) {
	reserve := int64(maxRequest)
	if r.ContentLength >= 0 {
		reserve = min(r.ContentLength, maxRequest)
	}
	release = func() { s.reading.Add(-reserve) }
	if s.reading.Add(reserve) > maxReading {
		w.Header().Set("Connection", "close")
		return nil, release, refuse(http.StatusServiceUnavailable, "too many requests are being read")
	}
	if r.ContentLength <= maxRequest {
		var err error
		if body, err = io.ReadAll(io.LimitReader(r.Body, maxRequest+1)); err != nil {
			w.Header().Set("Connection", "close")
			return nil, release, bad("the request ended early: %v", err)
		}
		if len(body) <= maxRequest {
			return body, release, nil
		}
	}
	// Take the rest off the connection: a caller that is still writing would see the connection break.
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxRefused)) // the answer is the same if it breaks
	w.Header().Set("Connection", "close")
	return nil, release, refuse(http.StatusRequestEntityTooLarge, "the request has more than %d bytes", maxRequest)
}

// handle answers the request in a body. The envelope's own token comes before that of the Authorization header.
func (s *Server) handle(req *http.Request, body []byte) response {
	e, r := readEnvelope(body)
	if r != nil {
		return refused(e, r)
	}
	if r := s.authorize(req, e); r != nil {
		return refused(e, r)
	}
	perform, known := operations[e.kind]
	if !known && s.opts.Sandbox != nil {
		perform, known = debugOperations[e.kind]
	}
	switch {
	case !known && strings.HasPrefix(e.kind, "debug.") && s.opts.Sandbox == nil:
		return refused(e, refuse(http.StatusForbidden, "%s needs a server in debug mode, which this one is not", cut(e.kind)))
	case !known:
		return refused(e, bad("kind %q is unknown", cut(e.kind)))
	}
	ctx, cancel := context.WithTimeout(req.Context(), answerTimeout)
	defer cancel()
	if e.debugTime != nil && s.opts.Sandbox != nil {
		ctx = withDebugTime(ctx, *e.debugTime)
	}
	status, data, err := perform(s, ctx, e)
	if err != nil {
		return refused(e, refusalOf(err))
	}
	return answer(e, status, data)
}
