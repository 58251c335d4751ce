// Package rules owns the table of bugs in the rule packages (journal, reduction, graph, recovery, entity) and in the
// machine that composes them. It promises that each named test notices its bug; see package mutation for how a bug
// is planted and what a failure means. It holds tests alone and keeps nothing, so it has nothing to lose.
package rules
