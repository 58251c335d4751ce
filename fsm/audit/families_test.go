package audit

import (
	"testing"

	"perdure/fsm/state/keys"
)

// Every family of keys has a check.
func TestAuditKnowsEveryFamily(t *testing.T) {
	for _, row := range keys.Table() {
		if families[row.Family] == nil {
			t.Errorf("no check of %s keys", row.Name)
		}
	}
	if len(families) != len(keys.Table()) {
		t.Errorf("the audit knows %d families, there are %d", len(families), len(keys.Table()))
	}
}
