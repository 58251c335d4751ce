package state

import (
	"strconv"
	"strings"

	"perdure/recovery"
)

// ClosePolicy says what becomes of an open child when its parent ends. The numbers are those of perdurev1.ClosePolicy;
// they are stored and never change.
type ClosePolicy uint8

// The close policies.
const (
	// CloseFollow: the child ends as its parent, and runs on if that completes or fails.
	CloseFollow ClosePolicy = 0
	CloseCancel ClosePolicy = 1
	// CloseTerminate: a request to cancel the parent cancels the child, the parent's end terminates it.
	CloseTerminate ClosePolicy = 2
	CloseAbandon   ClosePolicy = 3
)

// These tags mark the proxy promise of a child in another place: of one whose root id depends on its parent's incarnation,
// and of one with an id of its own. The value is the close policy and the child's id. Proxy promises of states below
// LevelFunctions have no tag.
const (
	spreadTag = "$child"
	ownIDTag  = "$child-id"
)

// ChildElsewhere is a child that has a proxy promise at its parent.
type ChildElsewhere struct {
	ID     string
	Policy ClosePolicy
	// OwnID: the parent has chosen the id.
	OwnID bool
}

// Tags are the tags of the child's proxy promise.
func (c ChildElsewhere) Tags() []recovery.Tag {
	key := spreadTag
	if c.OwnID {
		key = ownIDTag
	}
	return []recovery.Tag{{Key: key, Value: strconv.Itoa(int(c.Policy)) + " " + c.ID}}
}

// ChildOf returns the child whose end settles a proxy promise; ok is false for other promises.
func ChildOf(p recovery.Promise) (c ChildElsewhere, ok bool) {
	if !p.External || p.Target != "" || len(p.Param) > 0 || len(p.Tags) != 1 || p.Tags[0].Key != spreadTag && p.Tags[0].Key != ownIDTag {
		return c, false
	}
	number, childID, ok := strings.Cut(p.Tags[0].Value, " ")
	n, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil || ClosePolicy(n) > CloseAbandon {
		return c, false
	}
	return ChildElsewhere{childID, ClosePolicy(n), p.Tags[0].Key == ownIDTag}, true
}
