// Package poll serves the message streams of the Resonate protocol: `GET /poll/{group}/{pid}` answers 200 at once with
// server-sent events, one for each execute or unblock for the process's addresses, each `data: ` with one line of JSON.
//
// The package owns the form of a stream: events, comments that keep it alive, deadlines of writes. Which message is for
// which stream is decided by package partition/addresses, at the leader of the promise. The package stores nothing; a
// crash ends the streams, clients open others at any node, and what was not written is offered again.
//
// Refusals are text: 400 for the name of a group or process that no address can have, 503 while the node has as many
// streams as it may, or stops.
package poll
