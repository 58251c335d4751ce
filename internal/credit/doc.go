// Package credit is the ledger of one worker's capacity. A worker announces how many tasks it can take; the ledger
// splits that capacity over links, one for each node that assigns tasks, and follows each unit of credit until a task
// uses it.
//
// Ledger is the side that splits: a worker that has a session with every node, or one node on behalf of a
// worker that cannot. Share is the side that spends: a node's session with the worker. Both are values
// without lock, clock or goroutine. A ledger takes events and answers actions; the caller sends, waits and
// keeps the time:
//
//	var step func(e credit.Event)
//	step = func(e credit.Event) {
//		for _, a := range ledger.Step(now(), e) {
//			switch a := a.(type) {
//			case credit.Grant: // send a.N units of credit over a.Link
//			case credit.Revoke: // ask for up to a.N unused units; the answer, whenever it comes, is Returned
//			case credit.Wake: // step(credit.Tick{}) at a.At
//			}
//		}
//	}
//	step(credit.LinkOpened{Link: "n1", Leads: true, Of: 3})
//	step(credit.Announced{N: 8})
//	step(credit.Assigned{Link: "n1", Task: t}) // n1 has used a unit for t
//	step(credit.Begun{Task: t})                // t was sent to the worker
//	step(credit.Finished{Task: t})
//
// Ledger's invariants, after every event of every sequence:
//
//	granted[l] >= 0, idle >= 0
//	sum of granted[l] + idle = announced
//	0 <= overcommitted <= sum of granted[l]
//	idle > 0 implies overcommitted = 0
//
// Here announced is the capacity that no task has taken, granted[l] the part of it that link l may use, and
// idle the part that no link has. overcommitted counts the worker's tasks for which no credit was used; the
// next returned credit covers them. Share's invariant is
//
//	0 <= reserved <= granted
//
// A crash loses the ledger. The worker announces its capacity again to its next one.
package credit

// Assert makes a ledger and a share panic once an inequality of theirs is broken. Tests set it before they start.
var Assert bool
