// Command perdure is the command line of a Perdure cluster: it starts, cancels and shows executions and graph
// runs, creates and settles promises, shows the cluster, transfers leaderships, repairs replicas, and checks
// the state of a cluster or a data directory.
//
// It owns the names and numbers that scripts rely on: command and flag names, exit codes, and the JSON it
// prints. An exit code of 0 means that the cluster has acknowledged the request. It stores nothing: a crash
// loses only the answer, and repeating the command with the same id is safe.
//
// # Exit codes
//
//	0  done
//	1  failed: the execution, run or node ended in a failure, verify found violations, cluster status found problems,
//	   or an error that is none of the below
//	2  bad usage: the command line, or a value that the cluster refuses for what it is (a graph's file)
//	3  not found: no such execution, promise, function, node (of a graph or of the cluster), partition or
//	   directory
//	4  conflict: the id is taken, finished, or settled differently, or another node leads than was asked for
//	5  unavailable, ask again: no node answered, it is not known whether a write was applied, or (result,
//	   promise get --wait, graph outcome, replica rebuild) the thing waited for had not ended in time, or (verify) not every
//	   replica could be compared in time, or (verify --data) a running process uses the directory
//
// # JSON
//
// With --json every command prints one object on one line; list and journal print one for each row. An object
// has the fields of the wire message it shows (api/perdure/v1), by their names there, all of them, in their
// order, except that
//
//   - an enum is its name in lower case without its prefix: "running", "rejected_timedout", "step";
//   - a payload (input, value, result, param, …) that is JSON is embedded as it is; an empty one is null;
//     any other is base64 under its name with _base64 behind it;
//   - a message that is not there (no outcome yet, no task) is left out; a time that is not there is 0;
//   - a payload that the codec command refuses is {"cannot_decode": its error, "bytes": the size};
//   - a row of a journal is flat: seq, time_ms, kind ("InvokeScheduled"), then the event's own fields, of
//     which a kind and a time_ms are called event_kind and event_time_ms.
//
// start prints {"id", "incarnation", "created", "status"}; result and start --wait {"id", "done"}, and once
// it is done "status" and either "value" or "failure" (start --wait also "incarnation" and "created"); cancel
// and terminate {"id", "status"}; signal {"id", "name"}; token hash {"name", "hash", "namespace", "role"} and
// with --new "token"; graph submit what start does; graph retry {"id"} and then the RetryGraphResponse; graph
// watch, and submit and retry with --watch, the GraphStatus whenever it has changed; graph validate {"ok",
// "name", "nodes", "edges"}; graph dot and svg always draw; version {"version", "go", "os", "arch"}; verify
// {"ok", what it checked, "violations"}, each violation {"rule", "namespace", "id", "seq" (if it is about a
// journal entry), "partition" (of a directory), "detail"}. It checked "namespaces" (names), "executions",
// "open", "events"; in a cluster at "gone" (listed, and no longer there when read) and "replicas", for each
// partition {"partition", "comparison" ("equal", "different", "incomplete", or "single": there is one),
// "index", "compared" and "missing" (nodes)}, or null if the server is in no cluster; in a directory at
// "partitions", "promises", "tasks", "callbacks", "messages", "replayed" (log entries that the states did not
// have yet). cluster status prints {"ok", "problems", "notes"} (in words) and then the ClusterStatus; cluster
// transfer {"transferred"}, each {"partition", "leader"}; replica rebuild {"node_id", "partition",
// "applied"}.
//
// Errors go to stderr; with --json as {"error": {"exit", "reason", "message", "ids", "hint"}}, where the
// reason is the server's or BAD_USAGE, UNAVAILABLE, OUTCOME_UNKNOWN, NOT_FINISHED, EXECUTION_FAILED,
// EXECUTION_CANCELLED, CONFLICT, INTERRUPTED, VIOLATIONS, UNHEALTHY, NOT_COMPARED, NO_DIRECTORY, IN_USE,
// CORRUPT, CODEC, FAILED.
//
// # Codec command
//
// Payloads are opaque to the cluster. --codec-command, or PERDURE_CODEC_COMMAND, names a program that
// converts them as a durable.Codec of the workers does. It is started for the first payload, gets one request
// per line on stdin, in order, and answers each with one line on stdout. An error that it answers replaces
// that payload on the screen; the exit code does not change, unless the payload is the whole output (result,
// entity call) or an input. A command that cannot be started, ends early, or breaks the protocol or its
// bounds is killed: the other payloads are shown as not decoded, and the exit code is 1.
//
// --codec-server, or PERDURE_CODEC_SERVER, names an HTTP server instead, which speaks the protocol of Temporal's remote
// codecs. A status of 400 or 422 refuses one payload, with the reason as text; any other than 200 makes the server useless.
//
// Converted are the payloads of executions, entities and promises that describe, journal, list, result,
// entity and promise show, and those that start, signal, entity and promise send. Of failures it is what the
// codec of a function has encoded, message and details as {"message", "details"}. Not converted are empty
// payloads, random values, the targets of one-way operations, failures that "promise reject" writes, and the
// commands of graphs.
//
// Each command is a file of its own. codec.go runs the codec command, codec_server.go asks a codec server,
// exit.go turns errors into words and codes, json.go messages into JSON, text.go values into columns for
// people.
package main
