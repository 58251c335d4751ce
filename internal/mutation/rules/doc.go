// Package rules owns the table of bugs in the rule packages (journal, reduction, graph, recovery, entity) and
// in the machine that composes them. Each named test notices its bug; package mutation says how a bug is
// planted and what a failure means. The package has tests only and stores nothing.
package rules
