package id

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

func TestOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"order-42": "order-42", "order-42:0.3": "order-42", "a:b:c": "a", ":x": "", "": "", "@counter@7": "@counter@7",
	} {
		if got := Origin(text); got != want {
			t.Errorf("Origin(%q) = %q, want %q", text, got, want)
		}
	}
}

// Slots are stored placement: these numbers must never change.
func TestSlotsArePinned(t *testing.T) {
	for _, c := range []struct {
		namespace, id string
		slot          uint16
	}{
		{"default", "order-42", 7267},
		{"default", "order-42:0.3", 7267},
		{"default", "order-43", 3269},
		{"tenant-a", "order-42", 7029},
		{"", "", 10088},
	} {
		if got := Slot(c.namespace, c.id); got != c.slot {
			t.Errorf("Slot(%q, %q) = %d, want %d", c.namespace, c.id, got, c.slot)
		}
	}
}

// A slot is the hash of namespace, NUL and origin; a whole call tree shares it.
func TestSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		namespace := rapid.String().Draw(t, "namespace")
		p, root, _ := drawID(t)
		want := uint16(xxhash.Sum64String(namespace+"\x00"+root) % 16384)
		if got := Slot(namespace, string(p)); got != want || got >= Slots {
			t.Fatalf("Slot(%q, %q) = %d, want %d", namespace, p, got, want)
		}
		if Slot(namespace, string(p.Child(3))) != want {
			t.Fatalf("a child of %q lives elsewhere", p)
		}
	})
}

func TestSpreadRoot(t *testing.T) {
	sum := sha256.Sum256([]byte("\x02d1\x08order-42\x01k"))
	if got := SpreadRoot("d1", "order-42", "k"); got != hex.EncodeToString(sum[:]) {
		t.Errorf("SpreadRoot = %s", got)
	}
	if err := ValidateRoot(SpreadRoot("", "", "")); err != nil {
		t.Error(err)
	}
	// Moving bytes between the parts gives another root.
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringN(0, 8, 16)
		a := [3]string{part.Draw(t, "digest"), part.Draw(t, "parent"), part.Draw(t, "key")}
		b := [3]string{part.Draw(t, "digest'"), part.Draw(t, "parent'"), part.Draw(t, "key'")}
		if rapid.Bool().Draw(t, "shift") {
			b = [3]string{a[0] + a[1], "", a[2]}
		}
		if same := SpreadRoot(a[0], a[1], a[2]) == SpreadRoot(b[0], b[1], b[2]); same != (a == b) {
			t.Fatalf("%q and %q: same root is %v", a, b, same)
		}
	})
}
