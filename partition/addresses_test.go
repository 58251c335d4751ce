package partition

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/addresses"
)

// asked proposes a command of a client, again while its outcome is unknown: a machine without time may not answer another node.
func asked(t *testing.T, at *Node, cmd *commandv1.Command) {
	t.Helper()
	var last error
	waitFor(t, fmt.Sprintf("an answer to %v", cmd), func() bool {
		_, last = at.router.Propose(bg(t), cmd)
		e := (*api.Error)(nil)
		if errors.As(last, &e) && e.Reason == perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
			return false
		}
		if last != nil {
			t.Fatalf("%v: %v", cmd, last)
		}
		return true
	}, func() string { return fmt.Sprint(last) })
}

// targeted creates a client's promise whose task is for an address.
func targeted(t *testing.T, at *Node, id, address string) {
	t.Helper()
	asked(t, at, &commandv1.Command{Request: rid("create " + id), Namespace: ns, Id: id,
		Kind: &commandv1.Command_CreateClientPromise{CreateClientPromise: &perdurev1.CreateClientPromiseRequest{Namespace: ns, Id: id, TimeoutAtMs: 1 << 45,
			Tags: map[string]string{"resonate:target": address}}}})
}

// settlePromise settles a client's promise.
func settlePromise(t *testing.T, at *Node, id string) {
	t.Helper()
	asked(t, at, &commandv1.Command{Request: rid("settle " + id), Namespace: ns, Id: id,
		Kind: &commandv1.Command_SettleClientPromise{SettleClientPromise: &perdurev1.SettleClientPromiseRequest{Namespace: ns, Id: id,
			State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED}}})
}

// listened registers an address as a listener of a promise.
func listened(t *testing.T, at *Node, id, address string) {
	t.Helper()
	asked(t, at, &commandv1.Command{Request: rid("listen " + id + address), Namespace: ns, Id: id,
		Kind: &commandv1.Command_RegisterListener{RegisterListener: &perdurev1.RegisterListenerRequest{Namespace: ns, Id: id, Address: address}}})
}

// waiting is how many unblocks wait for an address, by the leader of a promise's partition.
func waiting(t *testing.T, at *Node, id, address string) int {
	t.Helper()
	reply := mustQuery(t, at.router, &commandv1.Query{Namespace: ns, Id: id, Kind: &commandv1.Query_Messages{Messages: &commandv1.MessagesQuery{Address: address}}})
	return len(reply.GetMessages().GetUnblocks())
}

// openStream opens a stream that the test ends.
func openStream(t *testing.T, at *Node, group, pid string) *addresses.Stream {
	t.Helper()
	s, err := at.Addresses().Open(ns, group, pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// receives waits until each of these messages has come to a stream at least once, and writes all that come.
func receives(t *testing.T, s *addresses.Stream, want ...string) {
	t.Helper()
	var got []string
	waitFor(t, fmt.Sprintf("a stream to receive %q", want), func() bool {
		for _, q := range s.Take() {
			text := "unblock " + q.Message.GetUnblock().GetId() + " " + q.Message.GetUnblock().GetState().String()
			if e := q.Message.GetExecute(); e != nil {
				text = fmt.Sprintf("execute %s/%d", e.Id, e.Version)
			}
			got = append(got, text)
			s.Written(q, true)
		}
		return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(got, w) })
	}, func() string { return fmt.Sprintf("%q", got) })
}

// elsewhere are the nodes that do not lead a partition.
func elsewhere(all []*member, lead *member) []*member {
	return slices.DeleteFunc(slices.Clone(all), func(m *member) bool { return m == lead })
}

// A stream at any node gets the executes of tasks whose leaders are at others, whether it opens before the tasks are
// pending or afterwards. When the client moves to another node, so do its messages.
func TestStreamAtAnyNode(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 3)
	lead := leaderOf(t, all, 0)
	others := elsewhere(all, lead)
	at := others[0]
	before := idIn(at.router, 0, "before")
	targeted(t, at.Node, before, "poll://any@g")
	s := openStream(t, at.Node, "g", "p")
	receives(t, s, "execute "+before+"/0")
	after := idIn(at.router, 0, "after")
	targeted(t, at.Node, after, "poll://any@g/gone")
	receives(t, s, "execute "+after+"/0")
	s.Close()
	moved := openStream(t, others[1].Node, "g", "p")
	receives(t, moved, "execute "+before+"/0", "execute "+after+"/0")
	last := idIn(at.router, 0, "last")
	targeted(t, lead.Node, last, "poll://uni@g/p")
	receives(t, moved, "execute "+last+"/0")
}

// An unblock whose leader is lost between the settlement and the delivery comes once a stream of its address opens, at
// whichever node. The state keeps it until it was written, and no longer.
func TestUnblockOutlivesItsLeader(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 3)
	lead := leaderOf(t, all, 0)
	others := elsewhere(all, lead)
	const address = "poll://uni@g/p"
	id := idIn(lead.router, 0, "p")
	targeted(t, lead.Node, id, "poll://any@nobody")
	listened(t, lead.Node, id, address)
	settlePromise(t, lead.Node, id)
	if n := waiting(t, others[0].Node, id, address); n != 1 {
		t.Fatalf("%d unblocks wait", n)
	}
	lead.stop(t)
	next := leaderOf(t, others, 0)
	at := elsewhere(others, next)[0]
	s := openStream(t, at.Node, "g", "p")
	receives(t, s, "unblock "+id+" PROMISE_STATE_RESOLVED")
	waitFor(t, "the state to forget the unblock", func() bool { return waiting(t, at.Node, id, address) == 0 }, func() string { return "" })
}

// Unblocks for HTTP addresses wait until the node pushes, and are found in the state.
func TestPushedUnblock(t *testing.T) {
	n := newMemNode(t, 1)
	targeted(t, n, "p", "poll://any@nobody")
	for _, address := range []string{"https://example.com/hook", "gcps://project/topic", "ftp://x", "poll://uni@g/p"} {
		listened(t, n, "p", address)
	}
	settlePromise(t, n, "p")
	got := make(chan *commandv1.AddressMessage, 10)
	n.Addresses().ServePush(func(m *commandv1.AddressMessage, over func(bool)) bool {
		got <- m
		go over(true)
		return true
	})
	if m := <-got; m.Address != "https://example.com/hook" || m.GetUnblock().GetId() != "p" || m.Namespace != ns {
		t.Errorf("pushed %v", m)
	}
	waitFor(t, "the state to forget the unblock", func() bool { return waiting(t, n, "p", "https://example.com/hook") == 0 }, func() string { return "" })
	if waiting(t, n, "p", "gcps://project/topic") != 1 || waiting(t, n, "p", "poll://uni@g/p") != 1 || len(got) != 0 {
		t.Errorf("unblocks for other addresses do not wait any more, or %d more were pushed", len(got))
	}
}
