// Command node is the Perdure server: one process that stores executions, promises and tasks and serves them
// over gRPC.
//
// It owns the process: flags, environment and file become one embed.Config, signals become an orderly stop,
// and the outcome becomes an exit code. It has no rules and no state of its own: acknowledged writes are in
// the data folder, so a crash of this process loses none of them.
//
//	node dev       one node for development, data in ./perdure-data
//	node start     a node for service
//	node version   what this binary is
//
// Exit codes: 0 stopped in order, 1 could not start, halted by itself (also because another server replaced
// it) or did not stop in time, 2 invalid command line or configuration.
//
// main.go starts and stops the parts, in order; commands.go has the subcommands; flags.go derives the flags
// from embed's table of settings.
package main
