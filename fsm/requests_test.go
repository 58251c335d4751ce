package fsm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
)

// TestRequestsAsProto decodes random requests, whole and damaged, and compares with proto.Unmarshal. The bytes of
// starts and signals are used again afterwards.
func TestRequestsAsProto(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for n := range testkit.Choose(2_000, 20_000, 20_000) {
		for _, m := range []proto.Message{&perdurev1.WorkRequest{}, &perdurev1.StartRequest{}, &perdurev1.SignalRequest{}} {
			randomMessage(rng, m.ProtoReflect(), 0)
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			switch n % 4 {
			case 1:
				b = damage(rng, b)
			case 2:
				b = append(b, b...) // merged by proto
			case 3:
				b = respell(rng, b, 0)
			}
			want := m.ProtoReflect().New().Interface()
			wrong := proto.Unmarshal(b, want)
			before := bytes.Clone(b)
			got := m.ProtoReflect().New().Interface()
			switch in := got.(type) {
			case *perdurev1.WorkRequest:
				err = UnmarshalWorkRequest(b, in)
			case *perdurev1.StartRequest:
				err = UnmarshalStart(b, in)
			case *perdurev1.SignalRequest:
				err = UnmarshalSignal(b, in)
			}
			if !bytes.Equal(b, before) {
				t.Fatal("decoding has changed the bytes")
			}
			if _, work := got.(*perdurev1.WorkRequest); !work {
				clear(b)
			}
			if (err == nil) != (wrong == nil) || err == nil && !proto.Equal(got, want) {
				t.Fatalf("%x: decoded\n%v, %v\nnot\n%v, %v", before, got, err, want, wrong)
			}
		}
	}
}

// TestCommitTakesFewAllocations: a commit is decoded by hand.
func TestCommitTakesFewAllocations(t *testing.T) {
	b, err := proto.Marshal(&perdurev1.WorkRequest{CallId: 7, Timestamp: 9, Kind: &perdurev1.WorkRequest_Commit{Commit: &perdurev1.Commit{
		Request: &perdurev1.RequestID{Id: make([]byte, 16)}, Task: &perdurev1.TaskToken{Namespace: "ns", Id: "execution", Incarnation: 3, Version: 1},
		Events: []*perdurev1.Event{{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: []byte("result")}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	decode := func(unmarshal func([]byte, *perdurev1.WorkRequest) error) float64 {
		return testing.AllocsPerRun(1000, func() {
			if err := unmarshal(b, &perdurev1.WorkRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	own, usual := decode(UnmarshalWorkRequest), decode(func(b []byte, m *perdurev1.WorkRequest) error { return proto.Unmarshal(b, m) })
	if own > usual/2 {
		t.Errorf("%.1f allocations, proto.Unmarshal needs %.1f", own, usual)
	}
	t.Logf("%.1f allocations, proto.Unmarshal needs %.1f", own, usual)
}

// TestLargeBatch: a message of few bytes does not become millions of messages in memory.
func TestLargeBatch(t *testing.T) {
	m := &perdurev1.WorkRequest{}
	for range maxRequestBatch {
		m.Batch = append(m.Batch, &perdurev1.WorkRequest{})
	}
	for _, c := range []struct {
		more int
		ok   bool
	}{{0, true}, {1, false}} {
		for range c.more {
			m.Batch = append(m.Batch, &perdurev1.WorkRequest{})
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := UnmarshalWorkRequest(b, &perdurev1.WorkRequest{}); (err == nil) != c.ok {
			t.Errorf("%d messages together: %v", len(m.Batch), err)
		}
	}
}
