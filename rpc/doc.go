// Package rpc is the door: the gRPC services of perdure.v1 and the HTTP port beside them.
//
// It owns translation and admission: it checks a request's form and limits before anything is proposed,
// makes commands and queries of requests, and says every refusal as a typed error. It promises that a
// request it refuses has changed nothing and that every wait has a deadline. It keeps only streams and
// timers; a crash loses nothing, since clients repeat with the same request id.
//
// executions.go, promises.go and work.go (the workers' stream) are the services; validate.go the limits;
// http.go metrics, health and profiles. To add a call: the .proto file, one method here, one command or
// query file in fsm/machine.
package rpc
