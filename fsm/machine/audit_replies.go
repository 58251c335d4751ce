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

// replyAge judges the note of a reply's age: there is such a reply, and none as old was forgotten.
func (a *auditor) replyAge(key, value []byte) {
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
	if evicted := a.number(metaEvicted); at < evicted {
		a.found("", fmt.Sprintf("request %x", request), RuleReplies, "a reply of %d, and those up to %d are forgotten", at, evicted)
	}
}

// countReplies judges the number that bounds them. It counts all of one state at once: replies come and go.
func (a *auditor) countReplies() {
	count := func(family keys.Family) (n uint64) {
		a.scan([]byte{byte(family)}, []byte{byte(family) + 1}, func(_, _ []byte) bool {
			n++
			return true
		})
		return n
	}
	replies, ages := count(keys.Reply), count(keys.ReplyAge)
	if n := a.number(metaReplies); n != replies || n != ages {
		a.found("", "", RuleReplies, "%d replies and %d ages are stored, %d are counted", replies, ages, n)
	}
}
