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
	err := proto.Unmarshal(d.bytes(), &commandv1.Reply{})
	if end := d.end(); err == nil {
		err = end
	}
	if err != nil {
		a.damaged("", "", key, err.Error())
		return
	}
	if !a.has(keys.ReplyAgeOf(at, key[1:])) {
		a.found("", fmt.Sprintf("request %x", key[1:]), RuleReplies, "a reply of %d whose age is not noted", at)
	}
}

// replyAge judges the note of a reply's age: there is such a reply.
func (a *auditor) replyAge(key, value []byte) {
	a.ages++
	at, request, err := keys.CutUint64(key[1:])
	if err != nil || len(value) > 0 {
		a.damaged("", "", key, "it is no age of a reply")
		return
	}
	b, ok := a.get(keys.ReplyOf(request))
	d := decoder{b: b}
	if stored := d.i64(); !ok || uint64(stored) != at {
		a.found("", fmt.Sprintf("request %x", request), RuleReplies, "the age of a reply of %d, which is not there", at)
	}
}

// countReplies judges, when all has been seen, the number that bounds them.
func (a *auditor) countReplies() {
	if n := a.number(metaReplies); n != a.report.Replies || n != a.ages {
		a.found("", "", RuleReplies, "%d replies and %d ages are stored, %d are counted", a.report.Replies, a.ages, n)
	}
}
