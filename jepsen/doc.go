// Package jepsen owns the harness that breaks a cluster of real processes and checks what is left: nodes
// that are killed, stopped, cut off, wiped or damaged while clients write, read and run executions.
// It promises to see a cluster only from outside, through its ports and its process ids, to call a run good
// only when a checker has seen all of its history, and to leave nothing behind: no process, no network
// namespace, no data. A crash of the harness loses the history of its run; the nodes end with it, and
// what it has made of the network is removed by the next run.
//
// # What it is made of
//
// A Cluster is some nodes, each a process with a data directory, on loopback or each in a network namespace
// of its own, whose cable can be pulled. A Fault is a row of a table: whom it hits, what it does, what
// mends it. A workload writes down what it asked and what it was answered, with times: registers
// (RegisterRun), writes under load (CommitRun), executions (ExecutionRun) and graphs (GraphRun), which are
// worked on by processes of their own (Worker). A checker is a pure function from such a history to
// violations: CheckRegister, CheckCommits, CheckExecutions, CheckHolding, CheckGraphs. The drivers
// (Failover, Histories, Executions, Graphs, Late, Recover, Upgrade) put the three together, and run/ is their command line.
//
// # Seeds
//
// A seed decides who is hit, when, and what the clients ask. It does not decide how the machine schedules
// threads, so the same seed makes the same kind of run, not the same run.
package jepsen
