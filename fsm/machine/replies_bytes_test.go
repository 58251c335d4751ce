package machine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// replyBytes is what the stored replies take of a state, keys and values.
func (w *world) replyBytes() (n int) {
	for _, family := range []keys.Family{keys.Reply, keys.ReplyAge} {
		if err := w.parts[0].state.Scan([]byte{byte(family)}, []byte{byte(family) + 1}, func(k, v []byte) bool {
			n += len(k) + len(v)
			return true
		}); err != nil {
			w.t.Fatalf("%v", err)
		}
	}
	return n
}

func bigPromiseCmd(request []byte, objectID string, size int) *commandv1.Command {
	cmd := createPromiseCmd(objectID, 3_600_000)
	cmd.Request = &perdurev1.RequestID{Id: request}
	cmd.GetCreatePromise().Param = bytes.Repeat([]byte{7}, size)
	return cmd
}

// A stored reply does not grow with the values of the promise that it shows. A repeated request gets the same answer:
// the promise as it was, also after it was settled.
func TestStoredRepliesHoldNoValues(t *testing.T) {
	w := newWorldAt(t, state.LevelAnswers, 1)
	w.unaudited = true
	w.raise(w.parts[0], state.LevelReplies)
	const size = 256 << 10
	var sent []*commandv1.Command
	var want []*commandv1.Reply
	record := func(cmd *commandv1.Command) {
		t.Helper()
		sent, want = append(sent, cmd), append(want, w.do(cmd))
	}
	for i := range 8 {
		record(bigPromiseCmd(w.request(), fmt.Sprint("p", i), size))
	}
	w.do(settlePromiseCmd("p1", reject, strings.Repeat("8", size)))
	record(bigPromiseCmd(w.request(), "p1", 1)) // it is there, and settled
	record(bigPromiseCmd(w.request(), "p2", 1)) // it is there, and pending
	w.do(settlePromiseCmd("p2", resolve, "v"))
	if n := w.replyBytes(); n > 10*300 {
		t.Errorf("10 replies take %d bytes", n)
	}
	w.audit(w.parts[0])
	for _, how := range []string{"at once", "after a restart"} {
		for i, cmd := range sent {
			if got := w.do(cmd); !proto.Equal(got, want[i]) {
				t.Errorf("%s: request %d is answered another way: %v", how, i, showPromise(got.GetPromise().Promise))
			}
		}
		w.open(w.parts[0])
	}
}

// A repeated request whose promise was replaced by a later one gets an unknown outcome and creates nothing.
func TestStoredReplyOfAPromiseThatIsGone(t *testing.T) {
	w := newWorldAt(t, state.LevelAnswers, 1)
	w.raise(w.parts[0], state.LevelReplies)
	w.submit("run", graphOf("a"), "")
	w.work()
	w.end("run", "a", "fail T:m")
	create := bigPromiseCmd(w.request(), "run", 1)
	if got := w.do(create).GetPromise().Promise.State; got == perdurev1.PromiseState_PROMISE_STATE_PENDING {
		t.Fatalf("the run is %v", got)
	}
	w.do(retryCmd(w.request(), "run"))
	e := w.refused(create, perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
	if e.Meta["id"] != "run" {
		t.Errorf("%v", e)
	}
}

// Stored replies are bounded in bytes: the oldest are evicted first, and their retries get an unknown
// outcome. Replies stored before the level was raised count no bytes and are evicted by age.
func TestRepliesBoundedInBytes(t *testing.T) {
	w := newWorldAt(t, state.LevelAnswers, 1, func(c *Config) { c.MaxReplyBytes = 4000 })
	w.unaudited = true
	w.begin("e", "f")
	before := signalCmd(w.request(), "e", "s", "before")
	w.do(before)
	w.raise(w.parts[0], state.LevelReplies)
	if got := w.do(before).GetSignal().DeliveryId; got != 1 {
		t.Errorf("delivery %d", got)
	}
	var sent []*commandv1.Command
	for i := range 60 {
		w.now += 10_000
		w.do(heartbeatCmd("w1", w.views[viewKey{"w1", "e"}].token))
		request := append(w.request(), bytes.Repeat([]byte{'x'}, 200)...)
		cmd := signalCmd(request, "e", "s", fmt.Sprint(i))
		w.do(cmd)
		sent = append(sent, cmd)
		if n := w.replyBytes(); n > 4000 {
			t.Fatalf("%d bytes of replies after %d signals", n, i+1)
		}
		if i%20 == 0 {
			w.audit(w.parts[0])
			w.open(w.parts[0])
		}
	}
	w.audit(w.parts[0])
	kept := count(w.parts[0].state, []byte{byte(keys.Reply)})
	if kept < 6 || kept > 8 {
		t.Errorf("%d replies of some 500 bytes are stored, 4,000 bytes may be", kept)
	}
	for i, cmd := range sent {
		cmd.Request.AgeMs = uint64(60-i)*10_000 - 9_999
		if i < 60-kept {
			w.refused(cmd, perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
		} else if got := w.do(cmd).GetSignal().DeliveryId; got != uint64(i+2) {
			t.Errorf("signal %d is delivery %d", i, got)
		}
	}
}

// A state below the level is written as programs that do not know it write it.
func TestRepliesBelowTheLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelAnswers, 1)
	w.do(bigPromiseCmd(w.request(), "p", 4096))
	if n := w.replyBytes(); n < 4096 {
		t.Errorf("the reply takes %d bytes", n)
	}
	if _, ok, err := w.parts[0].state.Get(keys.MetaKey(state.MetaReplyBytes)); ok || err != nil {
		t.Errorf("their bytes are counted (%v)", err)
	}
	_ = w.parts[0].state.Scan([]byte{byte(keys.ReplyAge)}, []byte{byte(keys.ReplyAge) + 1}, func(k, v []byte) bool {
		if len(v) > 0 {
			t.Errorf("the age %x holds %x", k, v)
		}
		return true
	})
}
