package engine

import "perdure/internal/mutation"

// contentBugs break the content of a snapshot: what a replica that lags behind becomes.
var contentBugs = []mutation.Bug{
	{
		File: "fsm/content.go", Rule: "content: it has the outbox",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Outbox {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it has the channels' numbers",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Channel {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it has the inbox's high-water",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Inbox {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it has the stored replies",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Reply {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it has the deadline index",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Deadline {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it has the ready queues",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Ready {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it has the callbacks",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Callback {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it has the latches of graph runs",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && keys.Family(key[0]) != keys.Latch {`,
		Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: it says up to which index it is applied",
		From: `if k := string(key); k != stamp && k != received {`, To: `if k := string(key); k != stamp && k != received && k != string(keys.MetaKey("applied")) {`,
		Tests: "TestContentRoundTrip",
	},
	{
		File: "fsm/content.go", Rule: "content: what the receiver had before is gone",
		From: `db, err := s.openDB(incoming, false)`, To: "if err := errors.Join(s.db.Flush(), s.db.Checkpoint(incoming)); err != nil {\n\t\treturn err\n\t}\n\tdb, err := s.openDB(incoming, false)", Tests: "TestContentHoldsEveryFamily",
	},
	{
		File: "fsm/content.go", Rule: "content: what was damaged on its way is refused",
		From: `if binary.BigEndian.Uint64(last[:]) != want {`, To: `if want == 0 {`, Tests: "TestDamagedContent",
	},
	{
		File: "fsm/content.go", Rule: "content: the last keys of it are installed too",
		From: "err := batch.Commit(pebble.NoSync)\n\t\t\treturn errors.Join(err, batch.Close())", To: "return batch.Close()", Tests: "TestContentRoundTrip",
	},
	{
		File: "fsm/content.go", Rule: "content: it is durable before it takes the state's place",
		From: "if err == nil {\n\t\terr = s.flush(db)\n\t}\n", To: "", Tests: "TestCrashAnywhere",
	},
	{
		File: "fsm/store.go", Rule: "covered: the state is durable before the log is cut",
		From: `		return s.flush(db)`, To: `		return s.failed()`, Tests: "TestCrashAnywhere",
	},
}
