// Package jepsen breaks a cluster of real processes and checks the result: it kills, pauses, cuts off, wipes
// or damages nodes while clients write, read and run executions. It uses a cluster only from outside, through
// its ports and its process ids. A run passes only when a checker has seen all of its history. The harness
// leaves no process, no network namespace and no data behind. A crash of the harness loses the history of its
// run; the nodes end with it, and the next run removes its network namespaces.
//
// # Parts
//
// A Cluster is some nodes, each a process with a data directory, on loopback or each in a network
// namespace of its own, whose cable can be pulled. A Fault is a row of a table: its targets, its action,
// its repair. A workload records its requests and their answers, with times: registers (RegisterRun),
// writes under load (CommitRun), the Resonate protocol (ResonateRun), executions (ExecutionRun) and graphs
// (GraphRun), whose workers are processes of their own (Worker). A checker is a pure function from such a
// history to violations: CheckRegister, CheckCommits, CheckResonate, CheckExecutions, CheckHolding,
// CheckGraphs, CheckRestore. The drivers (Failover, Histories, ResonateHistories, Executions, Graphs,
// Late, Recover, Upgrade, Backups) put the three together, and run/ is their command line.
//
// # Seeds
//
// A seed decides which nodes are hit, when, and what the clients ask. It does not decide how the machine
// schedules threads, so the same seed makes the same kind of run, not the same run.
package jepsen
