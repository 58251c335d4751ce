package election

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
)

// maxTargetLag is how many entries a transfer target may lack: the group refuses writes until it has them.
const maxTargetLag = 256

// position orders servers by their logs: the higher last term first, then the higher last index.
type position struct {
	server              string
	lastTerm, lastIndex uint64
}

// before reports whether p is preferred to o. Ids decide between equals, so that one of them campaigns first.
func (p position) before(o position) bool {
	switch {
	case p.lastTerm != o.lastTerm:
		return p.lastTerm > o.lastTerm
	case p.lastIndex != o.lastIndex:
		return p.lastIndex > o.lastIndex
	default:
		return p.server < o.server
	}
}

// candidate is a voter that answers, with the state of its member of a group.
type candidate struct {
	position
	addr, state, leader string
	term                uint64
	silent              time.Duration // since it heard from a leader
}

func candidateOf(server, addr string, st *commandv1.ReplicaStatus) candidate {
	return candidate{position{server, st.LastTerm, st.LastIndex}, addr, st.State, st.Leader, st.Term,
		time.Duration(st.ContactMs) * time.Millisecond}
}

// preferred returns the candidate that should campaign, judged by what me knows. try counts me's attempts
// from 0. The bool reports whether me should start that campaign now; if not, it waits. unreachable are the
// voters that did not answer.
func preferred(me candidate, others []candidate, unreachable []string, try int) (candidate, bool) {
	best := me
	for _, o := range others {
		if o.state == raft.Leader.String() || o.state == raft.Candidate.String() && try == 0 {
			return candidate{}, false // an election is under way
		}
		if o.before(best.position) {
			best = o
		}
	}
	if try > 0 {
		return best, true // also when best is another server, which may not have seen these positions
	}
	// Two voters that do not hear each other in time must not both campaign at once, or neither gets a
	// majority. The lower id goes first. Another preferred candidate campaigns by itself.
	return best, best == me && slices.Min(append(slices.Clone(unreachable), me.server)) == me.server
}

// majoritySilent reports whether a majority of the voters has lost the leader: this server, which has not
// heard from it for limit, and the others that have not either, or follow another one.
func majoritySilent(voters int, lost string, others []candidate, limit time.Duration) bool {
	agree := 1
	for _, o := range others {
		if o.leader != "" && o.leader != lost || o.silent >= limit {
			agree++
		}
	}
	return 2*agree > voters
}

// mayLead reports whether a member with this status could take a group over from its leader, whose own status is led.
func mayLead(group uint32, leader string, led *commandv1.ReplicaStatus, member *commandv1.NodeStatus) bool {
	if member == nil {
		return false
	}
	st := member.Directory
	if group != directoryGroup {
		if int(group) >= len(member.Replicas) {
			return false
		}
		st = member.Replicas[group]
	}
	return st != nil && st.Halted == "" && !st.Rebuilding && st.State == raft.Follower.String() &&
		st.Leader == leader && st.LastIndex+maxTargetLag >= led.LastIndex &&
		(group == directoryGroup || st.Applied+maxTargetLag >= led.Applied)
}
