package partition

import (
	"perdure/fsm/state"
	"perdure/partition/group"
	"perdure/partition/retention"
)

// retained is a replica as the retention sees it.
type retained struct{ *group.Replica }

// View implements retention.Replica.
func (r retained) View(read func(state.Reader) error) error { return r.Store().View(read) }

// Peek implements retention.Replica and quota.Replica.
func (r retained) Peek(read func(state.Reader) error) error { return r.Store().Peek(read) }

func newRetention(n *Node) *retention.Retention {
	return retention.New(retention.Options{
		Policy: n.cfg.Retention, Partitions: func() int { return int(n.identity.Partitions) }, Interval: n.cfg.RetentionInterval, Clock: n.clock, Log: n.log, Lifetime: n.lifetime,
		Replicas: func() (out []retention.Replica) {
			for _, r := range n.router.Replicas() {
				out = append(out, retained{r})
			}
			return out
		},
		Purged:  func(p uint32, purged int) { n.metrics.groups.Of(p).Purged.Add(float64(purged)) },
		Waiting: func(p uint32, waiting int) { n.metrics.groups.Of(p).PurgeWaiting.Set(float64(waiting)) },
	})
}
