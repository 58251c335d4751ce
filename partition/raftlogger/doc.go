// Package raftlogger turns log lines of hashicorp/raft, the peer port and Pebble into slog events that an operator may
// rely on: each line has an event= attribute, and a problem that repeats itself is an incident of a few lines.
//
// A Logger gives each library an hclog.Logger by name:
//
//	logs := raftlogger.New(raftlogger.Options{Log: slog, Clock: clock.System{}, ServerOf: serverAt, NodeOf: nodeOf})
//	raftConfig.Logger = logs.Named("raft-3")
//	transport.Answered = logs.PeerAnswered
//	...
//	logs.Close() // after the last library has stopped
//
// Lines that belong to every start, election or catching up are debug lines. The first line of an incident is logged
// at once, later ones once a minute as a number. Lines about a peer that does not answer are one incident per peer,
// whichever groups and libraries they come from; it ends when the peer has answered for three seconds. At debug level
// every line also appears in its library's words. Incidents are memory: a restart begins without any.
package raftlogger
