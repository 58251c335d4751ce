package state

import (
	"fmt"
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

// These tags mark the proxy promise of a child in another place: of one whose root id depends on its parent's
// incarnation, and of one with an id of its own. The value is the close policy, the retries if there are any,
// and the child's id. The child's own tags follow, each with a prefix. Proxy promises of states below
// LevelFunctions have no tag.
const (
	spreadTag      = "$child"
	ownIDTag       = "$child-id"
	childTagPrefix = "$child-tag:"
)

// ChildElsewhere is a child that has a proxy promise at its parent.
type ChildElsewhere struct {
	ID     string
	Policy ClosePolicy
	// OwnID: the parent has chosen the id.
	OwnID bool
	// Retry and Tags are the child's. A restart of the parent that starts the child again needs them.
	Retry Retry
	Tags  []recovery.Tag
}

// Mark returns the tags of the child's proxy promise.
func (c ChildElsewhere) Mark() []recovery.Tag {
	key := spreadTag
	if c.OwnID {
		key = ownIDTag
	}
	value := strconv.Itoa(int(c.Policy))
	if r := c.Retry; r != (Retry{}) {
		value = fmt.Sprintf("%s/%d/%d/%d/%d/%d", value, r.Attempts, r.InitialMS, r.MaxMS, r.FactorPercent, r.JitterPercent)
	}
	out := []recovery.Tag{{Key: key, Value: value + " " + c.ID}}
	for _, t := range c.Tags {
		out = append(out, recovery.Tag{Key: childTagPrefix + t.Key, Value: t.Value})
	}
	return out
}

// ChildOf returns the child whose end settles a proxy promise; ok is false for other promises.
func ChildOf(p recovery.Promise) (c ChildElsewhere, ok bool) {
	if !p.External || p.Target != "" || len(p.Param) > 0 || len(p.Tags) == 0 || p.Tags[0].Key != spreadTag && p.Tags[0].Key != ownIDTag {
		return ChildElsewhere{}, false
	}
	text, childID, ok := strings.Cut(p.Tags[0].Value, " ")
	number, retry, retries := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil || ClosePolicy(n) > CloseAbandon {
		return ChildElsewhere{}, false
	}
	c = ChildElsewhere{ID: childID, Policy: ClosePolicy(n), OwnID: p.Tags[0].Key == ownIDTag}
	if r := &c.Retry; retries {
		if _, err := fmt.Sscanf(retry, "%d/%d/%d/%d/%d", &r.Attempts, &r.InitialMS, &r.MaxMS, &r.FactorPercent, &r.JitterPercent); err != nil {
			return ChildElsewhere{}, false
		}
	}
	for _, t := range p.Tags[1:] {
		key, ok := strings.CutPrefix(t.Key, childTagPrefix)
		if !ok {
			return ChildElsewhere{}, false
		}
		c.Tags = append(c.Tags, recovery.Tag{Key: key, Value: t.Value})
	}
	return c, true
}
