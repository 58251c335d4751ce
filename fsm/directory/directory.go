// Package directory is the state machine of the cluster's own Raft group: the members, the slots of each
// partition, and its replicas.
//
// It defines how a cluster is created and how a server replaces another as a member. A refused command
// changes nothing. The epoch counts the changes of members and partitions. A created partition is never
// created again. Every member has announced that it knows the cluster's feature level. The package is pure
// and holds its state in memory; the Raft log makes it durable.
package directory

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// New returns the directory of a new cluster: every member has a replica of every partition, and is preferred
// for its share of them.
func New(clusterID, logStore string, partitions uint32, members []*commandv1.DirectoryMember) *commandv1.Directory {
	d := &commandv1.Directory{
		Epoch: 1, ClusterId: clusterID, State: commandv1.DirectoryState_DIRECTORY_STATE_CREATING,
		Partitions: partitions, LogStore: logStore,
	}
	var nodes []string
	for _, m := range members {
		m = proto.CloneOf(m)
		m.SinceEpoch = 1
		d.Members = append(d.Members, m)
		nodes = append(nodes, m.NodeId)
	}
	slices.SortFunc(d.Members, func(a, b *commandv1.DirectoryMember) int { return cmp.Compare(a.NodeId, b.NodeId) })
	slices.Sort(nodes)
	for p := range partitions {
		first, last := Slots(p, partitions)
		d.Placements = append(d.Placements, &commandv1.Placement{
			Partition: p, FirstSlot: first, LastSlot: last,
			Replicas: slices.Clone(nodes), Preferred: nodes[int(p)%len(nodes)],
		})
	}
	return d
}

// Slots returns the first and the last slot of a partition in a cluster that has moved no slots.
func Slots(partition, partitions uint32) (first, last uint32) {
	// The slots s with s*partitions/id.Slots == partition.
	low := func(p uint32) uint32 {
		return uint32((uint64(p)*id.Slots + uint64(partitions) - 1) / uint64(partitions))
	}
	return low(partition), low(partition+1) - 1
}

// Machine applies the directory's commands. It is not safe for concurrent use.
type Machine struct{ state *commandv1.Directory }

// State returns the present directory, nil before its creation. The caller must not change it; Apply replaces
// it.
func (m *Machine) State() *commandv1.Directory { return m.state }

// Apply applies one command. A refusal is an *api.Error and changes nothing.
func (m *Machine) Apply(cmd *commandv1.DirectoryCommand) error {
	next := proto.CloneOf(m.state)
	var err error
	switch k := cmd.Kind.(type) {
	case *commandv1.DirectoryCommand_Create:
		next, err = create(next, k.Create)
	case *commandv1.DirectoryCommand_Created:
		err = created(next, k.Created)
	case *commandv1.DirectoryCommand_Admit:
		err = admit(next, k.Admit)
	case *commandv1.DirectoryCommand_Raise:
		err = raise(next, k.Raise.GetLevel())
	default:
		return refused("a directory command of an unknown kind: written by a newer version")
	}
	if err != nil {
		return err
	}
	if m.state != nil && proto.Equal(next, m.state) {
		return nil
	}
	if m.state != nil && !onlyLevels(m.state, next) {
		next.Epoch = m.state.Epoch + 1
	}
	m.state = next
	return nil
}

func refused(format string, args ...any) error {
	return api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, format, args...)
}

// create creates the directory once. A repetition with the same content changes nothing.
func create(now *commandv1.Directory, c *commandv1.CreateDirectory) (*commandv1.Directory, error) {
	if now != nil {
		if now.ClusterId == c.Directory.GetClusterId() {
			return now, nil
		}
		return nil, refused("the directory is that of cluster %s already", now.ClusterId)
	}
	if c.Directory == nil || len(c.Directory.Members) == 0 || len(c.Directory.Placements) == 0 {
		return nil, refused("a directory needs members and partitions")
	}
	return proto.CloneOf(c.Directory), nil
}

// made records partitions that have had a leader. The cluster is ready when all have.
func created(d *commandv1.Directory, c *commandv1.CreatedPartitions) error {
	if d == nil {
		return refused("there is no directory yet")
	}
	for _, p := range c.Partitions {
		if int(p) >= len(d.Placements) {
			return refused("the cluster has no partition %d", p)
		}
		d.Placements[p].Created = true
	}
	if !slices.ContainsFunc(d.Placements, func(p *commandv1.Placement) bool { return !p.Created }) {
		d.State = commandv1.DirectoryState_DIRECTORY_STATE_READY
	}
	return nil
}

// admit gives a node's membership to its present server, which has a new data directory or a new address.
func admit(d *commandv1.Directory, c *commandv1.AdmitMember) error {
	if d == nil {
		return refused("there is no directory yet")
	}
	want := c.Member
	i := slices.IndexFunc(d.Members, func(m *commandv1.DirectoryMember) bool { return m.NodeId == want.GetNodeId() })
	if i < 0 {
		return refused("node %s is not a member of cluster %s", want.GetNodeId(), d.ClusterId)
	}
	have := d.Members[i]
	if have.ServerId == want.ServerId && (want.FeatureLevel == 0 || want.FeatureLevel >= d.FeatureLevel) {
		have.FeatureLevel = cmp.Or(want.FeatureLevel, have.FeatureLevel)
	} else if known := cmp.Or(want.FeatureLevel, UnannouncedLevel); known < d.FeatureLevel {
		return levelRefused("cluster %s is at feature level %d, node %s knows up to %d: start it with a newer version",
			d.ClusterId, d.FeatureLevel, want.NodeId, known)
	}
	if have.ServerId == want.ServerId && have.PeerAddr == want.PeerAddr {
		return nil
	}
	if have.ServerId != want.ServerId {
		if have.ServerId != c.Replaces {
			return refused("the place of node %s is held by %s, not by %s", want.NodeId, have.ServerId, c.Replaces)
		}
		if d.State != commandv1.DirectoryState_DIRECTORY_STATE_READY {
			return refused("the cluster is still being created; node %s cannot be replaced before it is ready", want.NodeId)
		}
	}
	m := proto.CloneOf(want)
	m.SinceEpoch = d.Epoch + 1
	if have.ServerId == want.ServerId {
		m.FeatureLevel = have.FeatureLevel
	}
	d.Members[i] = m
	return nil
}

// Successor returns the server that has replaced server who as a node's member, according to a given
// directory; nil if the directory does not prove that. since is the epoch at which who became the member (0
// if unknown), known the epoch of the newest directory that it has seen.
//
// Only a later epoch is a proof: an older directory may name the server's predecessor. A server id is drawn
// once and asks for membership once, so a replaced server never becomes the member again.
func Successor(shown *commandv1.Directory, node, who string, since, known uint64) *commandv1.DirectoryMember {
	if shown == nil || shown.Epoch < known {
		return nil
	}
	for _, m := range shown.Members {
		if m.NodeId == node && m.ServerId != who && m.SinceEpoch > since {
			return m
		}
	}
	return nil
}

// Holds returns the epoch since which a server is a member according to a directory; ok is false if it is
// none.
func Holds(d *commandv1.Directory, server string) (since uint64, ok bool) {
	for _, m := range d.GetMembers() {
		if m.ServerId == server {
			return m.SinceEpoch, true
		}
	}
	return 0, false
}
