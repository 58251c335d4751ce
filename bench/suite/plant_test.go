package suite

import (
	"testing"

	"perdure/internal/overlay"
)

// TestBurnApplies: the code into which a slow-down is planted is where Burn expects it.
func TestBurnApplies(t *testing.T) {
	if _, err := overlay.Write(t.Context(), "../..", t.TempDir(), Burn()); err != nil {
		t.Error(err)
	}
}
