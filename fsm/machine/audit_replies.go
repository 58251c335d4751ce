package machine

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/keys"
)

// reply judges a stored reply: it can be read, and its age is noted.
func (a *auditor) reply(key, value []byte) {
	a.report.Replies++
	d := decoder{b: value}
	at := d.i64()
	stored := &commandv1.Reply{}
	err := proto.Unmarshal(d.bytes(), stored)
	if end := d.end(); err == nil {
		err = end
	}
	if err != nil {
		a.damaged("", "", key, err.Error())
		return
	}
	age, ok := a.get(keys.ReplyAgeOf(at, key[1:]))
	request := fmt.Sprintf("request %x", key[1:])
	if !ok {
		a.found("", request, RuleReplies, "a reply of %d whose age is not noted", at)
		return
	}
	size, err := replySize(age)
	if is := uint64(2*len(key[1:]) + len(value) + replyCost); err == nil && len(age) > 0 && size != is {
		a.found("", request, RuleReplies, "a reply of %d bytes, %d are noted", is, size)
	}
	if level := a.number(metaFeature); level < levelReplies && (len(age) > 0 || stored.GetPromiseAnswer() != nil) {
		a.found("", request, RuleReplies, "a reply as of level %d in a state of feature level %d", levelReplies, level)
	}
}

// replyAge judges the note of a reply's age: there is such a reply, and none as old was forgotten.
func (a *auditor) replyAge(key, value []byte) {
	at, request, err := keys.CutUint64(key[1:])
	if _, bad := replySize(value); err != nil || bad != nil {
		a.damaged("", "", key, "it is no age of a reply")
		return
	}
	b, ok := a.get(keys.ReplyOf(request))
	d := decoder{b: b}
	if stored := d.i64(); !ok || uint64(stored) != at {
		a.found("", fmt.Sprintf("request %x", request), RuleReplies, "the age of a reply of %d, which is not there", at)
	}
	if evicted := a.number(metaEvicted); at < evicted {
		a.found("", fmt.Sprintf("request %x", request), RuleReplies, "a reply of %d, and those up to %d are forgotten", at, evicted)
	}
}

// countReplies judges the number that bounds them. It counts all of one state at once: replies come and go.
func (a *auditor) countReplies() {
	var bytes uint64
	count := func(family keys.Family) (n uint64) {
		a.scan([]byte{byte(family)}, []byte{byte(family) + 1}, func(_, value []byte) bool {
			if n++; family == keys.ReplyAge {
				size, _ := replySize(value) // damage is reported where the key is judged
				bytes += size
			}
			return true
		})
		return n
	}
	replies, ages := count(keys.Reply), count(keys.ReplyAge)
	if n := a.number(metaReplyBytes); n != bytes {
		a.found("", "", RuleReplies, "replies of %d bytes are stored, %d are counted", bytes, n)
	}
	if n := a.number(metaReplies); n != replies || n != ages {
		a.found("", "", RuleReplies, "%d replies and %d ages are stored, %d are counted", replies, ages, n)
	}
}
