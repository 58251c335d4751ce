package membership

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of what a member may say of itself. All of it travels in 512 bytes, which is memberlist's limit.
const (
	// MaxServerIDBytes bounds Member.ServerID.
	MaxServerIDBytes = 128
	// MaxTextBytes bounds each other text of a Member.
	MaxTextBytes = 255
	// MaxTextsBytes bounds all texts of a Member together, without the ServerID. The rest is reserved, so
	// that a Member that was accepted once is accepted with any Leads and Epoch.
	MaxTextsBytes = metaBytes - metaFixed
	// MaxPartitions bounds the partitions a member can say that it leads: 0 to 255.
	MaxPartitions = 256
)

// Member is what one server says of itself. It is an unchecked hint.
type Member struct {
	// NodeID is the name its operator gave it; ServerID is that name with the incarnation of its data
	// directory, and the same over restarts.
	NodeID, ServerID string
	// ClusterID is empty while the server waits to form or to join a cluster. Once set it never changes.
	ClusterID string
	// Addresses at which other nodes reach it, host:port.
	PeerAddr, GRPCAddr, HTTPAddr string
	// Version is that of the program.
	Version string
	// Partitions and BootstrapExpect are its flags, which must agree when a cluster is founded.
	Partitions, BootstrapExpect uint32
	// LogStore names the kind of its log store.
	LogStore string
	// Founding names the founding that it takes part in, if any.
	Founding string
	// Leads are the partitions that it says it leads, ascending.
	Leads []uint32
	// Epoch is that of the newest directory it has seen.
	Epoch uint64

	// GossipAddr is where its gossip is heard, host:port. It is found out, not said: Start and Update
	// ignore it.
	GossipAddr string
}

// MemberError says which field of a Member cannot be spread, and why.
type MemberError struct {
	ServerID string
	Field    string
	Detail   string
}

func (e *MemberError) Error() string {
	return fmt.Sprintf("membership: server %q: %s %s", e.ServerID, e.Field, e.Detail)
}

// texts are the fields that share MaxTextsBytes, in the order of the wire.
func (m *Member) texts() []struct {
	name string
	text *string
} {
	return []struct {
		name string
		text *string
	}{
		{"NodeID", &m.NodeID},
		{"ClusterID", &m.ClusterID},
		{"PeerAddr", &m.PeerAddr},
		{"GRPCAddr", &m.GRPCAddr},
		{"HTTPAddr", &m.HTTPAddr},
		{"Version", &m.Version},
		{"LogStore", &m.LogStore},
		{"Founding", &m.Founding},
	}
}

// check reports whether m can be spread, as a *MemberError.
func (m *Member) check() error {
	bad := func(field, format string, args ...any) error {
		return &MemberError{ServerID: m.ServerID, Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case m.NodeID == "":
		return bad("NodeID", "is empty")
	case m.ServerID == "":
		return bad("ServerID", "is empty")
	case len(m.ServerID) > MaxServerIDBytes:
		return bad("ServerID", "has %d bytes, %d are the most", len(m.ServerID), MaxServerIDBytes)
	case strings.ContainsRune(m.ServerID, 0):
		return bad("ServerID", "contains NUL")
	}
	total := 0
	for _, t := range m.texts() {
		if len(*t.text) > MaxTextBytes {
			return bad(t.name, "has %d bytes, %d are the most", len(*t.text), MaxTextBytes)
		}
		total += len(*t.text)
	}
	if total > MaxTextsBytes {
		return bad("texts", "have %d bytes together, %d are the most", total, MaxTextsBytes)
	}
	for _, p := range m.Leads {
		if p >= MaxPartitions {
			return bad("Leads", "names partition %d, %d is the last", p, MaxPartitions-1)
		}
	}
	return nil
}

// clone is a Member that shares nothing with m and whose Leads are ascending and unique.
func (m Member) clone() Member {
	m.Leads = slices.Clone(m.Leads)
	slices.Sort(m.Leads)
	m.Leads = slices.Compact(m.Leads)
	return m
}

// foreign reports whether two cluster ids forbid their nodes to know each other.
func foreign(a, b string) bool { return a != "" && b != "" && a != b }
