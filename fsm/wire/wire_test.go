package wire

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/journal"
	"perdure/recovery"
	"perdure/reduction"
)

var drawText = rapid.StringN(0, 5, 20)

var drawOutcome = rapid.Custom(func(t *rapid.T) []byte {
	blob := rapid.SliceOfN(rapid.Byte(), 0, 20)
	if rapid.Bool().Draw(t, "failed") {
		return recovery.AppendOutcome(nil, recovery.Outcome{Failure: &recovery.Failure{Type: drawText.Draw(t, "type"),
			Message: drawText.Draw(t, "message"), Details: blob.Draw(t, "details"), NonRetryable: rapid.Bool().Draw(t, "final")}})
	}
	return recovery.AppendOutcome(nil, recovery.Outcome{Data: blob.Draw(t, "data")})
})

// crossed is a message after a way over the wire.
func crossed[M proto.Message](t *rapid.T, m M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out.(M)
}

// A canonical outcome crosses the wire unchanged, to the byte: journals of all replicas stay equal.
func TestOutcomes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawOutcome.Draw(t, "outcome")
		got, err := DecodeOutcome(crossed(t, EncodeOutcome(b)))
		if err != nil || string(got) != string(b) {
			t.Fatalf("%x comes back as %x, %v", b, got, err)
		}
	})
	if got := EncodeOutcome([]byte{0xff, 1}); string(got.GetValue()) != "\xff\x01" {
		t.Errorf("bytes that are no outcome are shown as %v", got)
	}
	if got, err := DecodeOutcome(nil); err != nil || string(got) != string(recovery.AppendOutcome(nil, recovery.Outcome{})) {
		t.Errorf("no outcome is %x, %v", got, err)
	}
}

// Tags come back sorted by key: their order in a map reaches no state.
func TestTags(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOfN(drawText, drawText, 0, 6).Draw(t, "tags")
		tags := DecodeTags(want)
		if !slices.IsSortedFunc(tags, func(a, b recovery.Tag) int { return strings.Compare(a.Key, b.Key) }) {
			t.Fatalf("%q are not sorted", tags)
		}
		if got := EncodeTags(tags); len(got) != len(want) || !maps.Equal(got, want) {
			t.Fatalf("%q come back as %q", want, got)
		}
	})
}

// A refusal crosses a reply, of commands and of queries, with its reason, message and metadata.
func TestRefusals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := api.Errorf(perdurev1.Reason(rapid.Int32Range(0, 40).Draw(t, "reason")), "%s", drawText.Draw(t, "message"))
		for k, v := range rapid.MapOfN(drawText, drawText, 0, 4).Draw(t, "metadata") {
			want.With(k, v)
		}
		reply := crossed(t, Refusal(want))
		if got := ReplyError(reply); !reflect.DeepEqual(got, want) {
			t.Fatalf("%#v comes back as %#v", want, got)
		}
		if got := QueryError(&commandv1.QueryReply{Kind: &commandv1.QueryReply_Error{Error: reply.GetError()}}); !reflect.DeepEqual(got, want) {
			t.Fatalf("%#v comes back from a query as %#v", want, got)
		}
	})
	if e := ReplyError(&commandv1.Reply{}); e != nil {
		t.Errorf("a reply without an error is refused: %v", e)
	}
}

// The rules' numbers and the API's mean the same, by name.
func TestNumbersMeanTheSame(t *testing.T) {
	same := func(what, rules, wire, prefix string) {
		t.Helper()
		if got := strings.ToLower(strings.TrimPrefix(wire, prefix)); got != strings.ToLower(rules) {
			t.Errorf("%s %s is %s in the API", what, rules, wire)
		}
	}
	for s := journal.StatusRunning; s <= journal.StatusCancelled; s++ {
		same("status", s.String(), EncodeStatus(s).String(), "EXECUTION_STATUS_")
	}
	for s := recovery.TaskPending; s <= recovery.TaskFulfilled; s++ {
		same("task state", s.String(), EncodeTaskState(s).String(), "TASK_STATE_")
	}
	for s := recovery.PromisePending; s <= recovery.PromiseRejectedTimedout; s++ {
		same("promise state", s.String(), perdurev1.PromiseState(s).String(), "PROMISE_STATE_")
		if got := DecodePromiseState(perdurev1.PromiseState(s)); got != s {
			t.Errorf("promise state %v comes back as %v", s, got)
		}
	}
	for s := reduction.StatusPending; s.Valid(); s++ {
		same("node status", s.String(), EncodeNodeStatus(s).String(), "NODE_STATUS_")
	}
	for _, wrong := range []perdurev1.PromiseState{-1, 256, 257} {
		if got := DecodePromiseState(wrong); got != 0 {
			t.Errorf("promise state %d is read as %v", wrong, got)
		}
	}
}

// A promise without a deadline has none in the API either; a settled one shows the outcome that its awaiters get.
func TestPromises(t *testing.T) {
	p := recovery.Promise{ID: "e:0", State: recovery.PromisePending, TimeoutAt: state.Never, CreatedAt: 3, Tags: []recovery.Tag{{Key: "k", Value: "v"}}}
	if got := EncodePromise("ns", p); got.TimeoutAtMs != 0 || got.Value != nil || got.CreatedAtMs != 3 || got.Tags["k"] != "v" || got.Namespace != "ns" {
		t.Errorf("a pending promise: %v", got)
	}
	p.State, p.TimeoutAt, p.SettledAt = recovery.PromiseRejectedTimedout, 9, 9
	if got := EncodePromise("ns", p); got.TimeoutAtMs != 9 || got.Value.GetFailure().GetType() != state.FailureTimeout {
		t.Errorf("a promise that has timed out: %v", got)
	}
}
