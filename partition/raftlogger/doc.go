// Package raftlogger turns log lines of hashicorp/raft, the peer port and Pebble into slog events for
// operators: each line has an event= attribute, and a repeated problem is an incident of a few lines.
//
// A Logger gives each library an hclog.Logger by name:
//
//	logs := raftlogger.New(raftlogger.Options{Log: slog, Clock: clock.System{}, ServerOf: serverAt, NodeOf: nodeOf})
//	raftConfig.Logger = logs.Named("raft-3")
//	transport.Answered = logs.PeerAnswered
//	...
//	logs.Close() // after the last library has stopped
//
// Routine lines of a start, an election or a catch-up are debug lines. The first line of an incident is
// logged at once, later ones once a minute as a number. Lines about a peer that does not answer are one
// incident per peer, across groups and libraries; it ends when the peer has answered for three seconds. At
// debug level every line also appears in its original text. Incidents are in memory only: a restart begins
// without any.
package raftlogger
