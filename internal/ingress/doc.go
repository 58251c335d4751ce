// Package ingress bounds the memory that callers can make a server hold: connections (Listener) and the bytes of
// requests (Gate).
//
// A Gate belongs to one gRPC server. It reads each connection's HTTP/2 frames on their way to gRPC, so it
// knows how many bytes of every request have arrived and how many the request announces. It checks the
// caller's headers before gRPC reads the message, so a refused caller costs at most one flow-control window,
// and only until the refusal is sent. It counts bytes for the node, the connection and the class of the
// caller (its namespace).
//
//	gate := ingress.New(options)
//	server := grpc.NewServer(gate.ServerOptions(credentials)...)
//	services := gate.Registrar(server)
//	examplev1.RegisterExampleServer(services, implementation)
//	server.Serve(listener)
//
// gRPC (google.golang.org/grpc v1.85) buffers as follows: a connection's reader copies DATA frames into the
// stream's buffer, up to the stream's window. When a handler asks for a message, gRPC parses the five bytes of
// its header and grows the window by the announced length. So an unread request holds at most one window; the
// bytes come when the handler asks. The Gate acts at this point: a handler's receive first waits for the
// header, then reserves the announced bytes, then asks gRPC. With the default dynamic windows a stream's
// window could grow to 16 MiB, so windows are static.
//
// A connection whose only call asks for what is refused is read less often, so that its messages are handled together (Gate.Rest).
//
// The package owns counters only; a crash loses nothing.
package ingress
