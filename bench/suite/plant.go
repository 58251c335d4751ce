package suite

import (
	"context"
	"fmt"
	"strconv"

	"perdure/internal/overlay"
)

// burnEnv, in the environment of a node built with Burn, is how many nanoseconds of CPU time each command costs in
// addition, on each replica.
const burnEnv = "PERDURE_BENCH_BURN_NS"

// Burn patches a node so that each command that it applies costs more: a regression to be found.
func Burn() []overlay.Patch {
	return []overlay.Patch{
		{File: "fsm/raft.go", From: "if res, err = s.machine.Apply(l.Index, e); err != nil {\n",
			To: "benchBurn(len(e.GetCommands()))\n\t\tif res, err = s.machine.Apply(l.Index, e); err != nil {\n"},
		{File: "fsm/bench_burn.go", To: `package fsm

import (
	"os"
	"strconv"
	"time"
)

// burnRounds is how many rounds of work each command costs.
var burnRounds = func() float64 {
	ns, err := strconv.ParseFloat(os.Getenv("` + burnEnv + `"), 64)
	if err != nil {
		panic(err)
	}
	least := time.Hour
	const rounds = 1_000_000
	for range 10 { // the fastest: nothing else ran
		began := time.Now()
		burn(rounds)
		least = min(least, time.Since(began))
	}
	return ns / (float64(least) / rounds)
}()

var burnSink uint64

func burn(rounds int) {
	x := burnSink
	for i := range rounds {
		x = x*6364136223846793005 + uint64(i)
	}
	burnSink = x
}

func benchBurn(commands int) { burn(int(burnRounds * float64(commands))) }
`},
	}
}

// Plant measures what a command costs the nodes of a cell, and returns the environment that makes one built
// with Burn cost percent more.
func Plant(ctx context.Context, o Options, cell Cell, percent float64) ([]string, error) {
	o.Rounds = 3
	figures, err := Run(ctx, o, []Cell{cell})
	if err != nil {
		return nil, err
	}
	var costs []float64
	for _, f := range figures {
		costs = append(costs, f.ServerCPU/f.Commands/float64(f.Nodes))
	}
	_, ms, _ := Spread(costs)
	if !(ms > 0) {
		return nil, fmt.Errorf("a command costs %g ms: there is nothing to add to", ms)
	}
	return []string{burnEnv + "=" + strconv.FormatFloat(ms*1e6*percent/100, 'f', 0, 64)}, nil
}
