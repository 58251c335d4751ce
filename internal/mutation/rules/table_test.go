package rules

import (
	"os"
	"slices"
	"testing"

	"perdure/internal/mutation"
	"perdure/internal/testkit"
)

// table holds every row, in the order of the floors.
var table = slices.Concat(journalBugs, reductionBugs, graphBugs, recoveryBugs, entityBugs, machineBugs, waitingBugs, joinSetBugs, incarnationBugs, cleanupBugs, childrenBugs, versionBugs, refinementBugs, auditBugs, cutBugs, purgeBugs, inlineBugs, openBugs, restoreBugs, historyBugs, clientBugs, resonateBugs)

const minBugs = 405

func TestMain(m *testing.M) {
	testkit.WaitingTests(mutation.AtOnce)
	os.Exit(m.Run())
}

// TestPlantedBugs checks that every row of the table fits its source. With -long it plants them all; a row for which
// there was no time is a failure then.
func TestPlantedBugs(t *testing.T) {
	root := mutation.Root(t)
	rows := mutation.Check(t, root, table, minBugs)
	if !testkit.Long() {
		return
	}
	if untried := mutation.TryAll(t, root, rows); untried > 0 {
		t.Errorf("%d rows were not tried", untried)
	}
}
