package auth

import (
	"context"
	"crypto"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/certs/certstest"
)

// echoTasks is a worker's stream that answers each message.
type echoTasks struct {
	perdurev1.UnimplementedTasksServer
}

func (echoTasks) Work(stream perdurev1.Tasks_WorkServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&perdurev1.WorkResponse{CallId: m.CallId}); err != nil {
			return err
		}
	}
}

// door is a server that answers what the guard lets in with Unimplemented, and a connection to it.
type door struct {
	*world
	conn *grpc.ClientConn
}

func newDoor(t *testing.T, keys ...crypto.Signer) *door {
	t.Helper()
	d := &door{world: newWorld(t, nil, keys...)}
	server := grpc.NewServer(grpc.UnaryInterceptor(d.Unary), grpc.StreamInterceptor(d.Stream))
	perdurev1.RegisterExecutionsServer(server, perdurev1.UnimplementedExecutionsServer{})
	perdurev1.RegisterPromisesServer(server, perdurev1.UnimplementedPromisesServer{})
	perdurev1.RegisterClientTasksServer(server, perdurev1.UnimplementedClientTasksServer{})
	perdurev1.RegisterEntitiesServer(server, perdurev1.UnimplementedEntitiesServer{})
	perdurev1.RegisterTasksServer(server, echoTasks{})
	perdurev1.RegisterClusterServer(server, perdurev1.UnimplementedClusterServer{})
	perdurev1.RegisterBackupsServer(server, perdurev1.UnimplementedBackupsServer{})
	perdurev1.RegisterGraphsServer(server, perdurev1.UnimplementedGraphsServer{})
	perdurev1.RegisterRestoresServer(server, perdurev1.UnimplementedRestoresServer{})
	perdurev1.RegisterHistoriesServer(server, perdurev1.UnimplementedHistoriesServer{})
	healthv1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	if d.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conn.Close() })
	return d
}

// with is a context whose calls show a token.
func with(t testing.TB, token string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// perdureMethods lists every method of perdure.v1 that is registered in this binary.
func perdureMethods() map[string]protoreflect.MethodDescriptor {
	found := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("perdure.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				found[fmt.Sprintf("/%s/%s", service.FullName(), m.Name())] = m
			}
		}
		return true
	})
	return found
}

// Every method has a row, every row a method, and what acts in a namespace names it.
func TestEveryMethodIsInTheTable(t *testing.T) {
	found := perdureMethods()
	if len(found) < 16 {
		t.Fatalf("only %d methods are known", len(found))
	}
	for name, m := range found {
		rule, ok := methods[name]
		if !ok {
			t.Errorf("%s is missing from the table in methods.go: which role does it need, and where?", name)
			continue
		}
		if rule.role < Read || rule.role > Admin {
			t.Errorf("%s needs %v", name, rule.role)
		}
		names := m.Input().Fields().ByName("namespace") != nil || m.Input().FullName() == "perdure.v1.WorkRequest"
		if names != (rule.scope == inNamespace) {
			t.Errorf("%s: its request names a namespace: %v; scope %d", name, names, rule.scope)
		}
		if service := m.Parent().Name(); (service == "Cluster" || service == "Backups" || service == "Restores") != (rule.scope != inNamespace) {
			t.Errorf("%s: scope %d", name, rule.scope)
		}
	}
	for name := range methods {
		if found[name] == nil {
			t.Errorf("%s is in the table and nowhere else", name)
		}
	}
}

// Each unary method, as each token, in each namespace: the table of roles written another way.
func TestWhoMayCallWhat(t *testing.T) {
	d := newDoor(t)
	reads := []string{"ListNodes", "Result", "Describe", "Journal", "List", "Get", "Await", "GetStatus", "GetGraph", "GetOutcome", "Search", "Export"}
	operators := []string{"TransferLeadership", "RebuildReplica", "ForgetQuarantined", "Upgrade", "Verify"}
	tokens := map[string]string{"reader": readerToken, "writer": writerToken, "other": otherToken, "admin": adminToken, "operator": operatorToken, "": ""}
	allowed := func(who string, m protoreflect.MethodDescriptor, namespace string) bool {
		method := string(m.Name())
		switch {
		case who == "":
			return false
		case who == "operator":
			return true
		case slices.Contains(operators, method), m.Parent().Name() == "Backups":
			return false
		case method == "GetStatus" && m.Parent().Name() == "Cluster":
			return true
		case (who == "other") != (namespace == "b"):
			return false
		}
		return who != "reader" || slices.Contains(reads, method)
	}
	calls := 0
	for name, m := range perdureMethods() {
		if m.IsStreamingClient() {
			continue
		}
		method := string(m.Name())
		namespaceField := m.Input().Fields().ByName("namespace")
		for _, namespace := range []string{"a", "b", "", "*"} {
			for who, token := range tokens {
				request := dynamicpb.NewMessage(m.Input())
				if namespaceField != nil {
					request.Set(namespaceField, protoreflect.ValueOfString(namespace))
				}
				ctx := with(t, token)
				if who == "" {
					ctx = metadata.NewOutgoingContext(ctx, metadata.MD{})
				}
				err := d.conn.Invoke(ctx, name, request, dynamicpb.NewMessage(m.Output()))
				calls++
				// In the default namespace, and in one called "*", only the operator has business.
				want := allowed(who, m, namespace)
				if namespaceField != nil && (namespace == "" || namespace == "*") {
					want = who == "operator"
				}
				switch {
				case want && status.Code(err) != codes.Unimplemented:
					t.Errorf("%s in %q as %q: %v, want it let in", method, namespace, who, err)
				case !want && who == "" && !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED):
					t.Errorf("%s in %q without a token: %v", method, namespace, err)
				case !want && who != "" && !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED):
					t.Errorf("%s in %q as %q: %v, want it refused", method, namespace, who, err)
				}
			}
		}
	}
	if calls < 300 {
		t.Errorf("only %d calls were made", calls)
	}
}

func TestRefusalsAreToldCountedAndLogged(t *testing.T) {
	d := newDoor(t)
	executions := perdurev1.NewExecutionsClient(d.conn)
	start := func(ctx context.Context) error {
		_, err := executions.Start(ctx, &perdurev1.StartRequest{Namespace: "a"})
		return err
	}
	plain := func(headers ...string) context.Context {
		ctx := metadata.NewOutgoingContext(with(t, ""), metadata.MD{})
		for _, h := range headers {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", h)
		}
		return ctx
	}
	for name, c := range map[string]struct {
		ctx    context.Context
		reason string
		want   perdurev1.Reason
		says   string
	}{
		"no token":          {plain(), reasonNoToken, perdurev1.Reason_REASON_UNAUTHENTICATED, "a token is needed"},
		"another scheme":    {plain("Basic abc"), reasonBadToken, perdurev1.Reason_REASON_UNAUTHENTICATED, "bearer token"},
		"two tokens":        {plain("Bearer "+readerToken, "Bearer "+operatorToken), reasonBadToken, perdurev1.Reason_REASON_UNAUTHENTICATED, "one bearer"},
		"no scheme":         {plain(operatorToken), reasonBadToken, perdurev1.Reason_REASON_UNAUTHENTICATED, "bearer token"},
		"an empty one":      {plain("Bearer "), reasonBadToken, perdurev1.Reason_REASON_UNAUTHENTICATED, "bearer token"},
		"an unknown one":    {plain("Bearer secret-guess"), reasonUnknownToken, perdurev1.Reason_REASON_UNAUTHENTICATED, "not known here"},
		"a lower role":      {with(t, readerToken), reasonRole, perdurev1.Reason_REASON_PERMISSION_DENIED, `token "reader" may read; Start needs write`},
		"another namespace": {with(t, otherToken), reasonNamespace, perdurev1.Reason_REASON_PERMISSION_DENIED, `token "other" is for namespace "b", not "a"`},
	} {
		before := d.refused(t, c.reason)
		err := start(c.ctx)
		if !api.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "guess") {
			t.Errorf("%s: %v", name, err)
		}
		if after := d.refused(t, c.reason); after != before+1 {
			t.Errorf("%s: counted %v times", name, after-before)
		}
	}
	if err := start(plain("bEARER  " + writerToken)); status.Code(err) != codes.Unimplemented {
		t.Errorf("the scheme in other letters: %v", err)
	}
	log := d.logged()
	for _, want := range []string{"event=auth_refused", "reason=role", "token=reader", "peer=127.0.0.1:", "method=/perdure.v1.Executions/Start", "namespace=a"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is missing from the log:\n%s", want, log)
		}
	}
	for _, token := range []string{readerToken, otherToken, "secret-guess"} {
		if strings.Contains(log, token) {
			t.Errorf("the log shows the token %q", token)
		}
	}
}

// Of many refusals in one second a few are logged; the next log line counts the others.
func TestLogIsBounded(t *testing.T) {
	w := newWorld(t, nil)
	many := 3*maxRefusalsLogged + 5
	for range many {
		w.refusals.note(unauthenticated(reasonNoToken, "no"), "peer", "method")
	}
	if n := strings.Count(w.logged(), "event=auth_refused"); n != maxRefusalsLogged {
		t.Errorf("%d lines for %d refusals, want %d", n, many, maxRefusalsLogged)
	}
	w.pass(time.Second)
	w.refusals.note(unauthenticated(reasonNoToken, "no"), "peer", "method")
	if want := fmt.Sprintf("omitted=%d\n", many-maxRefusalsLogged); !strings.HasSuffix(w.logged(), want) {
		t.Errorf("the last line does not end in %q:\n%s", want, w.logged())
	}
	if n := w.refused(t, reasonNoToken); n != float64(many+1) {
		t.Errorf("%v are counted, want %d", n, many+1)
	}
}

func hello(namespace string) *perdurev1.WorkRequest {
	return &perdurev1.WorkRequest{CallId: 1, Kind: &perdurev1.WorkRequest_Hello{Hello: &perdurev1.Hello{Namespace: namespace}}}
}

func beat() *perdurev1.WorkRequest {
	return &perdurev1.WorkRequest{CallId: 2, Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{}}}
}

// talk sends messages and returns the error of the stream, nil if each was answered.
func talk(stream perdurev1.Tasks_WorkClient, messages ...*perdurev1.WorkRequest) error {
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			_, err = stream.Recv()
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
	return nil
}

func TestWorkerStreams(t *testing.T) {
	d := newDoor(t)
	tasks := perdurev1.NewTasksClient(d.conn)
	open := func(token string) perdurev1.Tasks_WorkClient {
		t.Helper()
		stream, err := tasks.Work(with(t, token))
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	steady := open(writerToken)
	if err := talk(steady, hello("a"), beat()); err != nil {
		t.Fatal(err)
	}
	if err := talk(open(operatorToken), hello("b"), beat()); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		token    string
		messages []*perdurev1.WorkRequest
		want     perdurev1.Reason
	}{
		"an unknown token":         {"guess", []*perdurev1.WorkRequest{hello("a")}, perdurev1.Reason_REASON_UNAUTHENTICATED},
		"a reader":                 {readerToken, []*perdurev1.WorkRequest{hello("a")}, perdurev1.Reason_REASON_PERMISSION_DENIED},
		"another namespace":        {writerToken, []*perdurev1.WorkRequest{hello("b")}, perdurev1.Reason_REASON_PERMISSION_DENIED},
		"the default namespace":    {writerToken, []*perdurev1.WorkRequest{hello("")}, perdurev1.Reason_REASON_PERMISSION_DENIED},
		"no Hello first":           {writerToken, []*perdurev1.WorkRequest{beat()}, perdurev1.Reason_REASON_PERMISSION_DENIED},
		"a second Hello elsewhere": {writerToken, []*perdurev1.WorkRequest{hello("a"), hello("b")}, perdurev1.Reason_REASON_PERMISSION_DENIED},
	} {
		if err := talk(open(c.token), c.messages...); !api.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// A role that does not suffice is refused before a word is said.
	if _, err := open(readerToken).Recv(); !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED) {
		t.Errorf("a reader that says nothing: %v", err)
	}
	if err := talk(steady, beat()); err != nil {
		t.Errorf("the others' refusals ended a stream: %v", err)
	}
	// The token is taken out of the file while the stream is open.
	row, err := Row("new", "a-token-that-is-new", "a", Write)
	if err != nil {
		t.Fatal(err)
	}
	certstest.Write(t, d.dir, "tokens.yaml", []byte(row))
	d.Reload()
	if err := talk(steady, beat()); !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED) {
		t.Errorf("a token that is no longer in the file: %v", err)
	}
	if err := talk(open("a-token-that-is-new"), hello("a"), beat()); err != nil {
		t.Error(err)
	}
}

// A signed token ends its stream when it expires.
func TestStreamOfAnExpiredToken(t *testing.T) {
	ed := edKey(t)
	d := newDoor(t, ed)
	token := sign(t, jwt.SigningMethodEdDSA, ed, jwt.MapClaims{"exp": d.clock().Add(time.Minute).Unix(), "namespace": "a", "role": "write"})
	stream, err := perdurev1.NewTasksClient(d.conn).Work(with(t, token))
	if err != nil {
		t.Fatal(err)
	}
	if err := talk(stream, hello("a"), beat()); err != nil {
		t.Fatal(err)
	}
	d.pass(2 * time.Minute)
	if err := talk(stream, beat()); !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED) {
		t.Errorf("after it has expired: %v", err)
	}
}

func TestStandardServices(t *testing.T) {
	d := newDoor(t)
	none := metadata.NewOutgoingContext(with(t, ""), metadata.MD{})
	healthy := healthv1.NewHealthClient(d.conn)
	if _, err := healthy.Check(none, &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health without a token: %v", err)
	}
	watch, err := healthy.Watch(none, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Errorf("watching health without a token: %v", err)
	}
	services := func(ctx context.Context) error {
		stream, err := reflectionv1.NewServerReflectionClient(d.conn).ServerReflectionInfo(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
			_, err = stream.Recv()
			return err
		}
		_, err = stream.Recv()
		return err
	}
	if err := services(none); !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED) {
		t.Errorf("reflection without a token: %v", err)
	}
	if err := services(with(t, readerToken)); err != nil {
		t.Errorf("reflection with a token: %v", err)
	}
}

// A method that is missing from the table is refused, for every caller.
func TestUnknownMethodIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+operatorToken))
	called := false
	_, err := w.Unary(ctx, &perdurev1.StartRequest{}, &grpc.UnaryServerInfo{FullMethod: "/perdure.v1.Executions/Forget"},
		func(context.Context, any) (any, error) { called = true; return nil, nil })
	if !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED) || called {
		t.Errorf("%v, called %v", err, called)
	}
	// A row whose request names no namespace lets no caller in either.
	for _, request := range []any{proto.Message(&perdurev1.GetStatusRequest{}), beat(), nil} {
		_, err = w.Unary(ctx, request, &grpc.UnaryServerInfo{FullMethod: perdurev1.Executions_Start_FullMethodName},
			func(context.Context, any) (any, error) { called = true; return nil, nil })
		if !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED) || called {
			t.Errorf("%T: %v, called %v", request, err, called)
		}
	}
}
