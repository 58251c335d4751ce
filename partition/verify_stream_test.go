package partition

import (
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
)

// auditScript is a stream of so many events and then an error.
type auditScript struct {
	events int
	done   bool
	err    error
}

func (s *auditScript) Recv() (*perdurev1.VerifyEvent, error) {
	if s.events == 0 {
		return nil, s.err
	}
	s.events--
	return &perdurev1.VerifyEvent{Kind: &perdurev1.VerifyEvent_Done{Done: s.done && s.events == 0}}, nil
}

func TestAuditOverABrokenConnection(t *testing.T) {
	lost, other := status.Error(codes.Unavailable, "EOF"), status.Error(codes.Internal, "x")
	for name, c := range map[string]struct {
		streams []auditScript
		opened  int
		events  int
		err     error
	}{
		"whole":                    {[]auditScript{{events: 3, done: true}}, 1, 3, nil},
		"dead when first used":     {[]auditScript{{err: lost}, {events: 2, done: true}}, 2, 2, nil},
		"dead twice":               {[]auditScript{{err: lost}, {err: lost}}, 2, 0, lost},
		"broken in the middle":     {[]auditScript{{events: 1, err: lost}}, 1, 1, lost},
		"refused":                  {[]auditScript{{err: other}}, 1, 0, other},
		"ended without its report": {[]auditScript{{events: 1, err: io.EOF}}, 1, 1, io.EOF},
	} {
		opened, events := 0, 0
		err := receiveAudit(func() (auditStream, error) {
			opened++
			return &c.streams[opened-1], nil
		}, func(*perdurev1.VerifyEvent) error { events++; return nil })
		if !errors.Is(err, c.err) || opened != c.opened || events != c.events {
			t.Errorf("%s: %v after %d streams and %d events, want %v, %d, %d", name, err, opened, events, c.err, c.opened, c.events)
		}
	}
}
