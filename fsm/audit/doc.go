// Package audit checks a partition's state by every rule there is and changes nothing. Run and Auditor check a whole
// state; Invariants checks what one command has written, before it is stored.
//
// It shares fsm/state and the rules' own packages with the machine, and may not import fsm/machine (internal/lint): a
// wrong rule of the machine must not check itself. So this package derives once more, from the objects, what the
// machine keeps in step with them: the deadline index, the ready queues, the listing, the numbers of messages. What a
// stored value means by itself is fsm/state's (its package comment says where the line is).
//
// It promises that a violation names the rule and the object. An Auditor holds one journal, one graph run and the
// violations in memory; a crash loses the audit under way and nothing else.
package audit
