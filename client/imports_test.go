package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// restored is what the nodes of a cluster have stored of an import.
type restored struct {
	mu sync.Mutex
	// refuse decides a message of an import, by its number over all streams and attempts; nil: it is stored.
	refuse   func(n int, m *perdurev1.ImportRequest) error
	messages int
	streams  int
	// rows has the keys by partition; ends has the partitions that have ended.
	rows map[uint32]map[string]bool
	ends map[uint32]int
	// wrong is what the protocol forbids.
	wrong []string
}

// fakeRestores is the service of one node.
type fakeRestores struct {
	perdurev1.UnimplementedRestoresServer
	n *fakeNode
}

func (f *fakeRestores) Import(stream perdurev1.Restores_ImportServer) error {
	s := f.n.c.restored
	out := &perdurev1.ImportResponse{}
	s.mu.Lock()
	s.streams++
	s.mu.Unlock()
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return stream.SendAndClose(out) // of a stream that is broken, it goes nowhere
		}
		if err := s.take(m, first, out); err != nil {
			return err
		}
	}
}

func (s *restored) take(m *perdurev1.ImportRequest, first bool, out *perdurev1.ImportResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.messages
	s.messages++
	if s.refuse != nil {
		if err := s.refuse(n, m); err != nil {
			return err
		}
	}
	if begins := len(m.Rows) == 0 && m.Done == nil; begins != first {
		s.wrong = append(s.wrong, fmt.Sprintf("message %d: %v", n, m))
	}
	if s.rows[m.Partition] == nil {
		s.rows[m.Partition] = map[string]bool{}
	}
	for _, row := range m.Rows {
		s.rows[m.Partition][string(row.Key)] = true
		out.Rows++
		out.Bytes += uint64(len(row.Key))
	}
	if m.Done != nil {
		s.ends[m.Partition]++
		for p := range uint32(importPartitions) {
			if len(s.rows[p]) != importRows {
				s.wrong = append(s.wrong, fmt.Sprintf("the end of partition %d came when partition %d had %d rows", m.Partition, p, len(s.rows[p])))
			}
		}
	}
	return nil
}

const (
	importPartitions = 5
	importRows       = 20
)

// importing is a client of such nodes.
func importing(t *testing.T, opts Options, nodes ...string) (*Client, *restored) {
	t.Helper()
	c := newCluster(t, nodes...)
	c.restored = &restored{rows: map[uint32]map[string]bool{}, ends: map[uint32]int{}}
	if opts.Clock == nil {
		opts.Clock = &fakeClock{}
	}
	return c.client(opts), c.restored
}

// send sends the messages of a restore, as fsm/restore does, and counts how often it is asked to.
func send(attempts *int) func(func(*perdurev1.ImportRequest) error) error {
	return func(send func(*perdurev1.ImportRequest) error) error {
		*attempts++
		if err := send(&perdurev1.ImportRequest{Restore: 7, Partitions: importPartitions}); err != nil {
			return err
		}
		for row := range importRows {
			for p := range uint32(importPartitions) {
				if err := send(&perdurev1.ImportRequest{Restore: 7, Partitions: importPartitions, Partition: p,
					Rows: []*perdurev1.ImportedRow{{Key: fmt.Appendf(nil, "key-%d", row)}}}); err != nil {
					return err
				}
			}
		}
		for p := range uint32(importPartitions) {
			if err := send(&perdurev1.ImportRequest{Restore: 7, Partitions: importPartitions, Partition: p, Done: &perdurev1.ImportEnd{}}); err != nil {
				return err
			}
		}
		return nil
	}
}

// whole checks that the nodes have everything, once at least, and in an order that the protocol allows.
func (s *restored) whole(t *testing.T, what string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) > 0 {
		t.Errorf("%s: %s", what, strings.Join(s.wrong[:1], ", "))
	}
	for p := range uint32(importPartitions) {
		if len(s.rows[p]) != importRows || s.ends[p] == 0 {
			t.Errorf("%s: partition %d has %d rows and %d ends", what, p, len(s.rows[p]), s.ends[p])
		}
	}
}

// TestImport brings all rows over any number of streams, then the ends.
func TestImport(t *testing.T) {
	for _, streams := range []int{0, 1, 3, 100} {
		cl, s := importing(t, Options{}, "a")
		attempts := 0
		out, err := cl.Import(t.Context(), streams, send(&attempts))
		if err != nil || out.Rows != importRows*importPartitions || out.Bytes == 0 || attempts != 1 {
			t.Fatalf("%d streams: %v, %v, %d attempts", streams, out, err, attempts)
		}
		s.whole(t, fmt.Sprint(streams, " streams"))
		if want := 1 + max(1, min(streams, importPartitions)); s.streams != want {
			t.Errorf("%d streams were opened, want %d", s.streams, want)
		}
		if out, err := cl.Import(t.Context(), streams, func(func(*perdurev1.ImportRequest) error) error { return nil }); err != nil || out.Rows != 0 {
			t.Errorf("an import of nothing: %v, %v", out, err)
		}
	}
}

// TestImportContinues breaks one message after the other, by a lost connection and by a refusal that passes: the messages
// are sent again from the beginning, to another node if there is one.
func TestImportContinues(t *testing.T) {
	for _, broken := range []error{status.Error(codes.Unavailable, "the node stops"), refusal(perdurev1.Reason_REASON_TRY_LATER)} {
		for at := 0; ; at += 7 {
			cl, s := importing(t, Options{}, "a", "b")
			s.refuse = func(n int, _ *perdurev1.ImportRequest) error {
				if n == at {
					return broken
				}
				return nil
			}
			attempts := 0
			_, err := cl.Import(t.Context(), 3, send(&attempts))
			what := fmt.Sprintf("%v at message %d", broken, at)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if s.whole(t, what); attempts == 1 {
				break
			} else if attempts != 2 {
				t.Fatalf("%s: %d attempts", what, attempts)
			}
		}
	}
}

// TestImportGivesUp: what cannot pass ends the import at once, with the node's reason or the caller's.
func TestImportGivesUp(t *testing.T) {
	own := errors.New("the backup is damaged")
	for _, test := range []struct {
		name   string
		refuse error
		own    error
		is     func(error) bool
	}{
		{"not empty", refusal(perdurev1.Reason_REASON_RULE_BROKEN), nil, refusedWith(perdurev1.Reason_REASON_RULE_BROKEN)},
		{"a bad row", refusal(perdurev1.Reason_REASON_BAD_REQUEST), nil, refusedWith(perdurev1.Reason_REASON_BAD_REQUEST)},
		{"a newer backup", refusal(perdurev1.Reason_REASON_FEATURE_LEVEL), nil, refusedWith(perdurev1.Reason_REASON_FEATURE_LEVEL)},
		{"a broken node", status.Error(codes.Internal, "panic"), nil, func(err error) bool { return status.Code(err) == codes.Internal }},
		{"its own", nil, own, func(err error) bool { return errors.Is(err, own) }},
	} {
		cl, s := importing(t, Options{}, "a", "b")
		s.refuse = func(n int, _ *perdurev1.ImportRequest) error {
			if n == 11 {
				return test.refuse
			}
			return nil
		}
		attempts, sent := 0, 0
		messages := send(&attempts)
		_, err := cl.Import(t.Context(), 2, func(out func(*perdurev1.ImportRequest) error) error {
			return messages(func(m *perdurev1.ImportRequest) error {
				if sent++; sent == 30 && test.own != nil {
					return test.own
				}
				return out(m)
			})
		})
		if err == nil || !test.is(err) || attempts != 1 {
			t.Errorf("%s: %v after %d attempts", test.name, err, attempts)
		}
		s.mu.Lock()
		if len(s.ends) > 0 {
			t.Errorf("%s: partitions have ended: %v", test.name, s.ends)
		}
		s.mu.Unlock()
	}
}

func refusedWith(reason perdurev1.Reason) func(error) bool {
	return func(err error) bool { e, ok := api.FromStatus(err); return ok && e.Reason == reason }
}

// TestImportWithoutProgress: an import ends when Options.Timeout passes and no attempt comes farther than one before. As
// long as attempts do, it goes on.
func TestImportWithoutProgress(t *testing.T) {
	clock := &fakeClock{}
	cl, s := importing(t, Options{Clock: clock, Timeout: 10 * time.Second}, "a")
	s.refuse = func(int, *perdurev1.ImportRequest) error { return refusal(perdurev1.Reason_REASON_TRY_LATER) }
	attempts := 0
	_, err := cl.Import(t.Context(), 1, send(&attempts))
	if !errors.Is(err, ErrUnavailable) || attempts < 3 {
		t.Fatalf("%v after %d attempts", err, attempts)
	}
	if waited := clock.Now().Sub((&fakeClock{}).Now()); waited < 10*time.Second || waited > 30*time.Second {
		t.Errorf("it gave up after %v", waited)
	}
	if waits := slices.Max(clock.waits); waits > 2*backoffMax {
		t.Errorf("it paused for %v", waits)
	}
}

// TestImportCancelled: the caller's end is the error, and nothing is sent behind it.
func TestImportCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cl, s := importing(t, Options{}, "a")
	s.refuse = func(n int, _ *perdurev1.ImportRequest) error {
		if n == 17 {
			cancel()
		}
		return nil
	}
	attempts := 0
	if _, err := cl.Import(ctx, 2, send(&attempts)); !errors.Is(err, context.Canceled) || attempts != 1 {
		t.Fatalf("%v after %d attempts", err, attempts)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ends) > 0 {
		t.Errorf("partitions have ended: %v", s.ends)
	}
}
