package machine

import (
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// A channel counts the bytes of its outbox: also of messages that were sent at a lower feature level, from the first one
// at the level on, until trims have removed them.
func TestOutboxBytes(t *testing.T) {
	w := newWorldAt(t, state.LevelReplies, 2)
	far := "far"
	for w.at(far) == w.at("e") {
		far += "0"
	}
	p, dst := w.at("e"), w.at(far).cfg.Partition
	check := func(what string, counted bool) (n uint64) {
		t.Helper()
		prefix := keys.Number(keys.Outbox, dst)
		_ = p.state.Scan(prefix, keys.After(prefix), func(_, value []byte) bool {
			n += uint64(len(value))
			return true
		})
		ch, err := state.ReadChannel(p.state, keys.Number(keys.Channel, dst))
		if want := n; err != nil || ch.Bytes != want && counted || ch.Bytes != 0 && !counted {
			t.Errorf("%s: %+v counts %d bytes, must be %d (counted: %t): %v", what, ch, ch.Bytes, want, counted, err)
		}
		w.audit(p)
		return n
	}
	trim := func(through uint64) {
		w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{{Kind: &commandv1.Command_Trim{
			Trim: &commandv1.Trim{Destination: dst, Epoch: 1, Through: through}}}}})
	}
	v := w.begin("e", "f")
	w.commit(v, "signal "+far+" a one; signal "+far+" a three; signal "+far+" a eleven")
	if check("at a lower level", false) == 0 {
		t.Fatal("nothing was sent")
	}
	w.raise(p, state.LevelFunctions)
	check("at the level", false)
	trim(1)
	check("trimmed before anything counted", false)
	w.commit(v, "signal "+far+" a thirteen")
	check("after one more", true)
	w.commit(v, "signal "+far+" a thousands")
	check("after another", true)
	trim(4)
	if check("after a trim", true) == 0 {
		t.Fatal("all is trimmed")
	}
	trim(4)
	check("after the same trim", true)
	trim(5)
	if n := check("after the last trim", true); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	w.commit(v, "signal "+far+" a again")
	check("after one into the empty outbox", true)
}
