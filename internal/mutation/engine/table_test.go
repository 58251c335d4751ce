package engine

import (
	"os"
	"slices"
	"testing"

	"perdure/internal/mutation"
	"perdure/internal/testkit"
)

// table holds the bugs of the code around the rules: stores, snapshots, the leader's duties, the way of a
// call, the client's side. Their tests start nodes and build large binaries.
var table = slices.Concat(stableBugs, contentBugs, readBugs, routerBugs, channelBugs, leaseBugs, dispatchBugs, creditBugs, electionBugs, guardBugs, boundBugs, waitingBugs, stickyBugs, arrivalBugs, fullEntityBugs, heldBugs, streamBugs, memoryBugs, cutBugs, backupBugs, scheduleBugs, addressBugs, resonateBugs)

// minBugs is how many rows there are at least.
const minBugs = 273

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
