package auth

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Head checks a call by its headers, before its request is read: the token, and the role that the method needs. It
// answers the namespace the token is good in, "" for all, and whether no token is asked for.
func (g *Guard) Head(ctx context.Context, method string) (namespace string, open bool, err error) {
	p, open, d := g.checkHead(ctx, method)
	if d != nil {
		return "", false, g.refuseCall(ctx, method, d)
	}
	if p.Namespace == AllNamespaces {
		return "", open, nil
	}
	return p.Namespace, open, nil
}

// Unary is the interceptor of calls with one request.
func (g *Guard) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := g.Check(ctx, info.FullMethod, request); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// Check checks a call with one request; ctx has its headers.
func (g *Guard) Check(ctx context.Context, method string, request any) error {
	if d := g.checkCall(ctx, method, request, true); d != nil {
		return g.refuseCall(ctx, method, d)
	}
	return nil
}

// Stream is the interceptor of streams. The token is checked again with each message that comes: one that
// has expired, or was taken out of the file, ends its streams.
func (g *Guard) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	// The namespace is not known yet; the token itself and the role can be checked now.
	if d := g.checkCall(stream.Context(), info.FullMethod, nil, false); d != nil {
		return g.refuseCall(stream.Context(), info.FullMethod, d)
	}
	if _, open, _ := ruleOf(info.FullMethod); open {
		return handler(srv, stream)
	}
	return handler(srv, &guardedStream{ServerStream: stream, g: g, method: info.FullMethod})
}

// guardedStream checks each received message.
type guardedStream struct {
	grpc.ServerStream
	g      *Guard
	method string
	begun  bool // used by the one goroutine that receives
}

// RecvMsg implements grpc.ServerStream.
func (s *guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if d := s.g.checkCall(s.Context(), s.method, m, !s.begun); d != nil {
		return s.g.refuseCall(s.Context(), s.method, d)
	}
	s.begun = true
	return nil
}

// checkHead checks a call's method and token against the table.
func (g *Guard) checkHead(ctx context.Context, method string) (p Principal, open bool, d *denial) {
	rule, open, known := ruleOf(method)
	if open {
		return Principal{}, true, nil
	}
	token, d := tokenOf(ctx)
	if d != nil {
		return Principal{}, false, d
	}
	if p, d = g.authenticate(token); d != nil {
		return Principal{}, false, d
	}
	short := methodName(method)
	if !known {
		return p, false, forbidden(reasonMethod, p, "%s is not open to tokens", shorten(short))
	}
	namespace := ""
	if rule.scope == allNamespaces {
		namespace = AllNamespaces
	}
	return p, false, authorize(p, short, rule.role, namespace)
}

// checkCall checks a call against the table. request may be nil, when it is not known yet. must says that
// the request has to name a namespace, if the method acts in one.
func (g *Guard) checkCall(ctx context.Context, method string, request any, must bool) *denial {
	p, open, d := g.checkHead(ctx, method)
	rule, _, _ := ruleOf(method)
	if open || d != nil || rule.scope != inNamespace {
		return d
	}
	namespace, named := namespaceOf(request)
	if !named && must {
		return forbidden(reasonMethod, p, "%s begins without naming a namespace", shorten(methodName(method)))
	}
	return authorize(p, methodName(method), rule.role, namespace)
}

func methodName(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }

// tokenOf reads the bearer token of a call.
func tokenOf(ctx context.Context) (string, *denial) {
	md, _ := metadata.FromIncomingContext(ctx)
	return bearer(md.Get("authorization"))
}

// bearer reads the token of a header that must be there once.
func bearer(headers []string) (string, *denial) {
	if len(headers) == 0 {
		return "", unauthenticated(reasonNoToken, "a token is needed here (authorization: Bearer …)")
	}
	scheme, token, found := strings.Cut(headers[0], " ")
	token = strings.TrimSpace(token)
	if len(headers) > 1 || !found || !strings.EqualFold(scheme, "bearer") || token == "" {
		return "", unauthenticated(reasonBadToken, "one bearer token is needed here (authorization: Bearer …)")
	}
	return token, nil
}

// refuseCall logs and counts a denial and returns it as the error of the call.
func (g *Guard) refuseCall(ctx context.Context, method string, d *denial) error {
	from := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	g.refusals.note(d, from, method)
	return d.err
}
