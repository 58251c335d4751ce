package audit

import (
	"fmt"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// reply checks that a stored reply can be decoded and that its age is recorded.
func (a *auditor) reply(key, value []byte) {
	a.report.Replies++
	stored, err := state.DecodeReply(value)
	if err != nil {
		a.damaged("", "", key, err.Error())
		return
	}
	at := stored.At
	age, ok := a.Get(keys.ReplyAgeOf(at, key[1:]))
	request := fmt.Sprintf("request %x", key[1:])
	if !ok {
		a.found("", request, RuleReplies, "a reply of %d whose age is not noted", at)
		return
	}
	size, err := state.ReplySize(age)
	if is := uint64(2*len(key[1:]) + len(value) + state.ReplyCost); err == nil && len(age) > 0 && size != is {
		a.found("", request, RuleReplies, "a reply of %d bytes, %d are noted", is, size)
	}
	if level := a.number(state.MetaFeature); level < state.LevelReplies && (len(age) > 0 || stored.Reply.GetPromiseAnswer() != nil) {
		a.found("", request, RuleReplies, "a reply as of level %d in a state of feature level %d", state.LevelReplies, level)
	}
}

// replyAge checks the record of a reply's age: the reply exists, and it is newer than all evicted ones.
func (a *auditor) replyAge(key, value []byte) {
	at, request, err := keys.CutUint64(key[1:])
	if _, bad := state.ReplySize(value); err != nil || bad != nil {
		a.damaged("", "", key, "it is no age of a reply")
		return
	}
	b, ok := a.Get(keys.ReplyOf(request))
	if stored, err := state.DecodeReply(b); !ok || err == nil && uint64(stored.At) != at {
		a.found("", fmt.Sprintf("request %x", request), RuleReplies, "the age of a reply of %d, which is not there", at)
	}
	if evicted := a.number(state.MetaEvicted); at < evicted {
		a.found("", fmt.Sprintf("request %x", request), RuleReplies, "a reply of %d, and those up to %d are forgotten", at, evicted)
	}
}

// countReplies checks the stored number of replies. It counts all replies of one state at once, since they
// change between states.
func (a *auditor) countReplies() {
	var bytes uint64
	count := func(family keys.Family) (n uint64) {
		a.Scan([]byte{byte(family)}, []byte{byte(family) + 1}, func(_, value []byte) bool {
			if n++; family == keys.ReplyAge {
				size, _ := state.ReplySize(value) // damage is reported by the check of the key
				bytes += size
			}
			return true
		})
		return n
	}
	replies, ages := count(keys.Reply), count(keys.ReplyAge)
	if n := a.number(state.MetaReplyBytes); n != bytes {
		a.found("", "", RuleReplies, "replies of %d bytes are stored, %d are counted", bytes, n)
	}
	if n := a.number(state.MetaReplies); n != replies || n != ages {
		a.found("", "", RuleReplies, "%d replies and %d ages are stored, %d are counted", replies, ages, n)
	}
}
