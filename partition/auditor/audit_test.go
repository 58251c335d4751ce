package auditor

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/internal/clock"
	"perdure/internal/testkit"
)

// endless is a replica whose audit takes a piece's time each time, and never ends.
type endless struct{ worked time.Duration }

func (*endless) ID() uint32                       { return 0 }
func (*endless) Halted() error                    { return nil }
func (*endless) SetAudit(*perdurev1.ReplicaAudit) {}
func (r *endless) Audit(*audit.Auditor, func() bool, func() error) (bool, error) {
	over, stop := clock.System{}.After(auditPiece)
	<-over
	stop()
	r.worked += auditPiece
	return false, nil
}

// TestShare: audits in the background take their share of a processor, and a quarter of it while the node is busy.
func TestShare(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r := &endless{}
			a := New(Options{NodeID: "n1", Partitions: 1, Share: 0.04, Interval: time.Minute, Busy: func() bool { return busy },
				Replicas: func() []Replica { return []Replica{r} }, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Lifetime: ctx})
			ended := make(chan struct{})
			go func() {
				a.Run()
				close(ended)
			}()
			testkit.Advance(firstAudit)
			const watched = 1000 * time.Second
			testkit.Advance(watched)
			got := float64(r.worked) * auditOverhead / float64(watched)
			cancel()
			<-ended
			want := 0.04
			if busy {
				want = 0.01
			}
			if got < want*0.95 || got > want*1.05 {
				t.Errorf("busy %v: %.4f of a processor, not %.4f", busy, got, want)
			}
		})
	}
}
