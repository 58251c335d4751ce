package durable

import (
	"strings"
	"testing"
	"unsafe"

	perdurev1 "perdure/api/perdure/v1"
)

// A worker holds a record for each operation of an execution: it is small, and shares its texts with others.
func TestRecordIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(record{}); size > 96 {
		t.Errorf("a record takes %d bytes", size)
	}
	r := history{id: "x"}
	for i := range 2 {
		err := r.add(uint64(i), &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: childID("x", i), Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: strings.Repeat("n", 9), RetryPolicy: strings.Repeat("p", 9)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := r.op(0), r.op(1)
	if unsafe.StringData(a.name) != unsafe.StringData(b.name) || unsafe.StringData(a.policy) != unsafe.StringData(b.policy) {
		t.Error("two steps have copies of one name or policy")
	}
	for i := range 2 * maxTexts {
		r.text(strings.Repeat("t", i))
	}
	if n := len(r.texts); n != maxTexts {
		t.Errorf("%d texts are held", n)
	}
}
