// Package rpc serves the gRPC services of perdure.v1 and the HTTP port.
//
// It owns translation and admission: it checks a request's form and limits before anything is proposed,
// converts requests to commands and queries, and returns every refusal as a typed error. A request that it
// refuses has changed nothing, and every wait has a deadline. It keeps only streams and timers; a crash loses
// nothing, since clients repeat with the same request id.
//
// executions.go, graphs.go, promises.go, cluster.go and work*.go (the workers' stream) are the services;
// validate.go the limits; http.go metrics, health and profiles. To add a call: the .proto file, one method
// here, one command or query file in fsm/machine.
package rpc
