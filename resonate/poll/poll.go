package poll

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/addresses"
)

// Defaults of Options.
const (
	// keepAlive is how long a stream stays silent before it gets a comment.
	keepAlive = 15 * time.Second
	// writeTimeout bounds the write of what waits, so that a client that does not read loses its stream.
	writeTimeout = 10 * time.Second
)

// Options configure a Handler.
type Options struct {
	// Namespace is that of the promises whose messages the streams carry.
	Namespace string
	// Encode makes the JSON of a message, one line. A message that it refuses is not delivered.
	Encode func(m *commandv1.AddressMessage) ([]byte, error)
	// KeepAlive and WriteTimeout replace the defaults, unless they are 0.
	KeepAlive, WriteTimeout time.Duration
}

// Handler serves streams. It is safe for concurrent use.
type Handler struct {
	opts    Options
	streams *addresses.Dispatcher
}

// New makes the handler of a node's streams, for a pattern with the wildcards group and pid. Its caller checks tokens.
func New(streams *addresses.Dispatcher, opts Options) *Handler {
	if opts.KeepAlive == 0 {
		opts.KeepAlive = keepAlive
	}
	if opts.WriteTimeout == 0 {
		opts.WriteTimeout = writeTimeout
	}
	return &Handler{opts: opts, streams: streams}
}

// ServeHTTP implements http.Handler. It blocks until the client closes the stream or does not read it, or the node
// drains.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, err := h.streams.Open(h.opts.Namespace, r.PathValue("group"), r.PathValue("pid"))
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, addresses.ErrName) {
			status = http.StatusBadRequest
		}
		http.Error(w, err.Error(), status)
		return
	}
	defer s.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass each event on at once
	out := writer{http.NewResponseController(w), w, h.opts.WriteTimeout}
	if !out.write([]byte(":\n\n")) || r.Method == http.MethodHead {
		return
	}
	silence := time.NewTicker(h.opts.KeepAlive)
	defer silence.Stop()
	for {
		ok := true
		select {
		case <-s.Ready():
			ok = h.send(s, out)
			silence.Reset(h.opts.KeepAlive)
		case <-silence.C:
			ok = out.write([]byte(":\n\n"))
		case <-s.Done():
			h.send(s, out)
			ok = false
		case <-r.Context().Done():
			ok = false
		}
		if !ok {
			return
		}
	}
}

// send writes what waits; false if the client does not take it.
func (h *Handler) send(s *addresses.Stream, out writer) bool {
	for _, m := range s.Take() {
		line, err := h.opts.Encode(m.Message)
		if err != nil || bytes.ContainsAny(line, "\r\n") {
			s.Written(m, false)
			continue
		}
		event := make([]byte, 0, len(line)+8)
		event = append(append(append(event, "data: "...), line...), "\n\n"...)
		ok := out.write(event)
		s.Written(m, ok)
		if !ok {
			return false
		}
	}
	return true
}

// writer writes to a client within a time for each write.
type writer struct {
	control *http.ResponseController
	http.ResponseWriter
	timeout time.Duration
}

// write writes and flushes; false if the client did not take it in time.
func (w writer) write(b []byte) bool {
	// A writer that knows no deadlines is a test's.
	if err := w.control.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false
	}
	if _, err := w.Write(b); err != nil {
		return false
	}
	return w.control.Flush() == nil
}
