// Command node is the Perdure server: one process that keeps executions, promises and tasks and serves
// them over gRPC.
//
// It owns the process: flags, environment and file become one embed.Config, signals become an orderly
// stop, and what happened becomes an exit code. It knows no rule and keeps no state of its own: whatever
// was acknowledged is in the data folder, so a crash of this process loses nothing that was.
//
//	node dev       one node for development, data in ./perdure-data
//	node start     a node for service
//	node version   what this binary is
//
// Exit codes: 0 stopped in order, 1 could not start, halted by itself (also because another server replaced it)
// or did not stop in time, 2 invalid command line or configuration.
//
// main.go is the list of what starts and stops, in order; commands.go says what can be asked for;
// flags.go derives the flags from embed's table of settings.
package main
