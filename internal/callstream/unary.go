package callstream

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// WithStatus has each unary call of a connection end with a status. gRPC makes a call again by itself when its
// connection broke before the server had seen it; when the next connection breaks before the request is written, the call
// ends with a bare io.EOF. Such a call was not executed: it ends with Unavailable.
func WithStatus() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, in, out, conn, opts...)
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the connection broke before the request was written")
		}
		return err
	})
}
