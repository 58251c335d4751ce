// Package callstream carries unary gRPC calls in batches on one long-lived stream between two processes: a call then
// costs an entry in a message instead of an HTTP/2 stream with headers, goroutine and trailers.
//
// A Conn stands in for a grpc.ClientConn. It carries the small requests of the methods that it was given, and passes all
// other calls on, and these too while there is no stream: the first calls, after a break, at a server that knows no
// streams, beyond the bounds. So a caller sees what it sees of unary calls: one answer or one status, its deadline, its
// cancellation. When a stream breaks, a call that was not handed to it is made again as a unary call, and any other one
// ends with Unavailable: it may have been executed.
//
// A Server runs the handlers of registered services for the entries of its streams, each call on a goroutine of its own,
// through the same interceptors as unary calls. Frequent methods have an Async form without a goroutine (package async).
// Answers come in any order.
//
//	numbers of a stream's calls rise, 0 < number; under way <= maxUnderWay on both sides
//	queued <= maxQueued bytes wait at the client; a server with more answers waiting reads no further request
//
// Closing a Conn or a Server ends its streams and joins their goroutines. A crash loses the calls under way.
package callstream

// The services that carry calls: of clients to a node, and of nodes to each other.
const (
	ForClients = "perdure.v1.Calls"
	ForNodes   = "perdure.command.v1.Calls"
)
