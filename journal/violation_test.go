package journal

import (
	"strings"
	"testing"
)

func TestViolationReadsAsAnError(t *testing.T) {
	b := started(t, scheduled(0), attempted(0, 1))
	v := b.refuse(RuleRetriesOpenAttempt, retrying(0, 7))
	want := "execution \"order-42\", event 3: the open attempt of promise order-42:0 is 1, not 7 (R9 retries_open_attempt)"
	if v.Error() != want || v.Kind != KindInvokeRetrying || v.Promise != kid(0) {
		t.Errorf("%#v reads %s, want %s", v, v, want)
	}
}

// A user's text is quoted, and not at any length.
func TestViolationQuotesNames(t *testing.T) {
	v := started(t).refuse(RuleDeliveryID, delivered("a\nb", 7, ""))
	if !strings.Contains(v.Error(), `signal "a\nb" is 1, not 7`) {
		t.Error(v)
	}
	v = started(t).refuse(RuleDeliveryID, delivered(strings.Repeat("x", 1<<20), 7, ""))
	if len(v.Error()) > 300 {
		t.Errorf("a long name makes the refusal %d bytes long", len(v.Error()))
	}
}
