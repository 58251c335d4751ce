package membership

import (
	"errors"
	"time"

	"github.com/hashicorp/memberlist"
)

var (
	errForeign = errors.New("membership: a node of another cluster")
	errNotOurs = errors.New("membership: not a member of this kind")
)

// delegate implements memberlist's callbacks. There is no merge delegate on purpose: memberlist passes it a
// whole view without its sender, and a fresh node's view may rightly hold nodes of two clusters. The alive
// delegate sees every member one by one, from any source.
type delegate struct{ *Gossip }

// NodeMeta implements memberlist.Delegate.
func (d delegate) NodeMeta(int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return []byte(d.meta)
}

// NotifyMsg implements memberlist.Delegate; there are no messages.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive implements memberlist.AliveDelegate.
func (d delegate) NotifyAlive(n *memberlist.Node) error { return d.heard(n.Name, n.Address(), n.Meta) }

// NotifyJoin implements memberlist.EventDelegate.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.joined(n.Name, n.Address(), n.Meta) }

// NotifyUpdate implements memberlist.EventDelegate.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.updated(n.Name, n.Address(), n.Meta) }

// NotifyLeave implements memberlist.EventDelegate.
func (d delegate) NotifyLeave(n *memberlist.Node) { d.removed(n.Name) }

// AckPayload implements memberlist.PingDelegate.
func (d delegate) AckPayload() []byte { return encodeClock(d.clock.Now()) }

// NotifyPingComplete implements memberlist.PingDelegate.
func (d delegate) NotifyPingComplete(n *memberlist.Node, rtt time.Duration, payload []byte) {
	d.answered(n.Name, rtt, payload)
}
