package engine

import (
	"time"

	"perdure/internal/mutation"
)

// arrivalBugs break the receipt of signals that arrive while a function runs.
var arrivalBugs = []mutation.Bug{
	{
		File: "durable/arrival.go", Rule: "signal: one behind another that the worker does not know is not received",
		From: `s.GetName() == name && s.GetDeliveryId() == delivery {`, To: `s.GetName() == name && s.GetDeliveryId() >= delivery {`, Tests: "TestSignalsArrive", Hangs: 15 * time.Second,
	},
	{
		File: "durable/arrival.go", Rule: "signal: a worker that was told of none does not linger",
		From: "\tif !l.pushed.Load() {\n\t\treturn false\n\t}\n", To: "", Tests: "TestLingers",
	},
	{
		File: "durable/arrival.go", Rule: "signal: a function does not linger for one that the journal has",
		From: `t.journal.delivered(name) >= next || `, To: ``, Tests: "TestNoLingerForADeliveredSignal", Hangs: 20 * time.Second,
	},
	{
		File: "durable/arrival.go", Rule: "signal: a function whose signals are late does not linger",
		From: "\t\t\tt.w.lingers.waited(t.info.Function, lingerTime)\n", To: "", Tests: "TestLinger",
	},
	{
		File: "durable/arrival.go", Rule: "signal: a hold has a bounded number",
		From: "\tif len(a.signals) == maxArrivals {\n\t\treturn\n\t}\n", To: "", Tests: "TestArrivalsAreBounded",
	},
	{
		File: "durable/commit.go", Rule: "signal: a waiting function forgets what it has received",
		From: "\t\tt.stepsRecorded(steps)\n\t\tt.receiptsRecorded(msg.Events)\n", To: "\t\tt.stepsRecorded(steps)\n", Tests: "TestSignalArrivesBeforeAWait",
	},
}
