// Package journal owns the rules of the execution journal: the 20 kinds of events, which of them may come
// next, the status as a fold over them, their stored bytes, and the records that a replay reads. A journal
// built through State keeps every invariant of the journal spec and its rulings, and a refused append changes
// nothing. The package stores nothing: the owner of the entries decides what a crash may lose, and rebuilds
// State from them.
//
// # Three views of one journal
//
// State is the guard: it holds enough of a journal to check the next event in constant time, whatever the
// journal's length. Check is the auditor: it reads a whole journal and lists all violations. It shares no
// guard with State, so tests compare the two. Replay is the reader: it returns the record at each child
// identifier, for a program that runs again.
//
// # Beyond the spec
//
// A wait of kind JoinSet names a join set and one of its members, and ends with any member whose result was
// not consumed. The spec's Any names them all, so a function that joins n children would write n squared ids.
// R12 and R13 hold for it as they do for the same wait of kind Any.
//
// # One file per event
//
// event_*.go holds one event each: its fields, its guard (may it be appended?), its effect on State and its
// bytes. The guards name the rule they apply: S, INV, SE, CF and JS are the invariants of the spec, R and K
// its rulings. To learn what an event means, read its file; nothing about it is elsewhere except its line in
// the table of kinds (kind.go) and the independent rules of Check (check_*.go).
//
// # Identifiers
//
// Every call that a program makes takes the next child number of its execution: the n-th takes eid/n, n from
// 0. So the children of one journal are dense, and State keeps them in a slice rather than a map. The
// execution's own identifier may have any depth (ruling K6).
package journal
