// Package audit checks a partition's state by every rule and changes nothing. Run and Auditor check a whole
// state; Invariants checks the writes of one command before they are stored.
//
// It shares fsm/state and the rules' own packages with the machine, and may not import fsm/machine
// (internal/lint): a wrong rule of the machine must not check itself. So this package derives again from the
// objects what the machine keeps consistent with them: the deadline index, the ready queues, the listing, the
// numbers of messages. fsm/state defines the meaning of single stored values (see its package comment).
//
// A violation names the rule and the object. An Auditor holds one journal, one graph run and the violations
// in memory; a crash loses only the running audit.
package audit
