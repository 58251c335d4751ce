package embed_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/embed"
	"perdure/internal/callstream"
	"perdure/internal/certs/certstest"
	"perdure/rpc/auth"
)

const (
	nodeReader   = "reader-of-namespace-a"
	nodeWriter   = "writer-of-namespace-a"
	nodeOperator = "operator-of-all"
)

// house is a whole node whose ports have TLS, and the files that secure it.
type house struct {
	*running
	dir string
	ca  *certstest.Authority
}

func newHouse(t *testing.T, change func(h *house, cfg *embed.Config)) *house {
	t.Helper()
	h := &house{dir: t.TempDir(), ca: certstest.NewAuthority(t, "ca")}
	certstest.Write(t, h.dir, "ca", h.ca.PEM)
	cfg := nodeConfig(filepath.Join(h.dir, "data"))
	cfg.TLSCert, cfg.TLSKey = certstest.WritePair(t, h.dir, "node", h.ca.Issue(t, certstest.Leaf{}))
	change(h, &cfg)
	h.running = startNode(t, cfg)
	return h
}

func rows(t *testing.T, tokens ...[3]string) []byte {
	t.Helper()
	var b strings.Builder
	for _, token := range tokens {
		role, err := auth.ParseRole(token[2])
		if err != nil {
			t.Fatal(err)
		}
		row, err := auth.Row(token[0][:6]+token[2], token[0], token[1], role)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(row)
	}
	return []byte(b.String())
}

// trust is a TLS configuration that believes the house's authority.
func (h *house) trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(h.ca.PEM)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

func (h *house) client(t *testing.T, namespace, token string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{Addrs: []string{h.GRPCAddr()}, Namespace: namespace, Token: token,
		TLS: &client.TLSOptions{CAFile: filepath.Join(h.dir, "ca")}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// get asks the HTTP port over TLS and returns the status.
func (h *house) get(t *testing.T, path, token string) int {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: h.trust(), DisableKeepAlives: true}
	request, err := http.NewRequest(http.MethodGet, "https://"+h.HTTPAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: testTimeout}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// A node as operators run it: roles and namespaces at both ports, garbage, and files that are replaced.
func TestSecuredNode(t *testing.T) {
	t.Parallel() // it waits most of the time
	h := newHouse(t, func(h *house, cfg *embed.Config) {
		cfg.TokensFile = certstest.Write(t, h.dir, "tokens",
			rows(t, [3]string{nodeReader, "a", "read"}, [3]string{nodeWriter, "a", "write"}, [3]string{nodeOperator, "*", "admin"}))
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout)
	defer cancel()
	writer := h.client(t, "a", nodeWriter)
	if _, err := writer.Start(ctx, client.StartOptions{Function: "f", ID: "x", AllowUnknownFunction: true}); err != nil {
		t.Fatal(err)
	}
	if e, err := h.client(t, "a", nodeReader).Describe(ctx, "x"); err != nil || e.GetId() != "x" {
		t.Errorf("a reader: %v, %v", e, err)
	}
	for name, c := range map[string]struct {
		namespace, token string
		want             perdurev1.Reason
	}{
		"a reader that writes":     {"a", nodeReader, perdurev1.Reason_REASON_PERMISSION_DENIED},
		"another namespace":        {"b", nodeWriter, perdurev1.Reason_REASON_PERMISSION_DENIED},
		"a namespace spelt nearly": {"a ", nodeWriter, perdurev1.Reason_REASON_PERMISSION_DENIED},
		"no token":                 {"a", "", perdurev1.Reason_REASON_UNAUTHENTICATED},
		"an unknown token":         {"a", "guess", perdurev1.Reason_REASON_UNAUTHENTICATED},
	} {
		if _, err := h.client(t, c.namespace, c.token).Start(ctx, client.StartOptions{Function: "f", ID: "y", AllowUnknownFunction: true}); !api.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := h.client(t, "b", nodeOperator).Describe(ctx, "y"); !api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) {
		t.Errorf("the operator, in another namespace: %v", err)
	}
	for path, want := range map[string]map[string]int{
		"/healthz":      {"": 200},
		"/readyz":       {"": 200},
		"/metrics":      {"": 401, "guess": 401, nodeReader: 200},
		"/debug/pprof/": {"": 401, nodeWriter: 403, nodeOperator: 200},
	} {
		for token, status := range want {
			if got := h.get(t, path, token); got != status {
				t.Errorf("%s with %q: %d, want %d", path, token, got, status)
			}
		}
	}

	// A worker at work; around it, strangers.
	stream, err := writer.Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&perdurev1.WorkRequest{CallId: 1, Kind: &perdurev1.WorkRequest_Hello{Hello: &perdurev1.Hello{
		WorkerId: "w", Namespace: "a", Functions: []string{"g"}, Capacity: 1}}}); err != nil {
		t.Fatal(err)
	}
	beat := func() error {
		if err := stream.Send(&perdurev1.WorkRequest{CallId: 2, Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{}}}); err != nil {
			_, err = stream.Recv()
			return err
		}
		_, err := stream.Recv()
		return err
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", h.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, addr := range []string{h.GRPCAddr(), h.HTTPAddr()} {
		for _, garbage := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("\x16\x03\x01\xff", 4096)} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(testTimeout))
			_, _ = io.WriteString(conn, garbage) // it may be cut off before it has all been said
			answer, err := io.ReadAll(conn)
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
				t.Errorf("%q at %s is not refused", garbage[:8], addr)
			}
			if strings.Contains(string(answer), "perdure_") {
				t.Errorf("%q at %s is answered", garbage[:8], addr)
			}
			conn.Close()
		}
	}
	if err := beat(); err != nil {
		t.Errorf("strangers have disturbed a worker: %v", err)
	}

	// The certificate is renewed; connections stay open.
	renewed := h.ca.Issue(t, certstest.Leaf{NotAfter: time.Now().Add(90 * time.Minute)})
	certstest.WritePair(t, h.dir, "node", renewed)
	wanted, err := tls.X509KeyPair(renewed.Cert, renewed.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{h.GRPCAddr(), h.HTTPAddr()} {
		seen := ""
		eventually(t, "the renewed certificate is shown", func() bool {
			cfg := h.trust()
			cfg.NextProtos = []string{"h2", "http/1.1"}
			conn, err := tls.Dial("tcp", addr, cfg)
			if err != nil {
				seen = err.Error()
				return false
			}
			defer conn.Close()
			shown := conn.ConnectionState().PeerCertificates[0]
			seen = fmt.Sprintf("%s shows the one until %s", addr, shown.NotAfter)
			return shown.Equal(wanted.Leaf)
		}, func() string { return seen })
	}
	if err := beat(); err != nil {
		t.Errorf("the renewal has cut a worker off: %v", err)
	}

	// The writer's token is taken away; a new one comes in.
	certstest.Write(t, h.dir, "tokens", rows(t, [3]string{"neuer-schreiber", "a", "write"}, [3]string{nodeOperator, "*", "admin"}))
	fresh := h.client(t, "a", "neuer-schreiber")
	eventually(t, "the new token is good", func() bool { _, err = fresh.Describe(ctx, "x"); return err == nil }, func() string { return fmt.Sprint(err) })
	if _, err := writer.Describe(ctx, "x"); !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED) {
		t.Errorf("a token that was taken away: %v", err)
	}
	if err := beat(); !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED) {
		t.Errorf("a worker whose token was taken away: %v", err)
	}
}

// TestNothingIsOpen: every port and method of a node, health apart, asks for a token.
func TestNothingIsOpen(t *testing.T) {
	h := newHouse(t, func(h *house, cfg *embed.Config) {
		cfg.TokensFile = certstest.Write(t, h.dir, "tokens", rows(t, [3]string{nodeReader, "a", "read"}))
	})
	conn, err := grpc.NewClient(h.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(h.trust())))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+nodeReader))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	listed, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, service := range listed.GetListServicesResponse().GetService() {
		if service.Name == "grpc.health.v1.Health" {
			continue
		}
		if service.Name == callstream.ForClients { // it has no descriptor
			if err := conn.Invoke(ctx, "/"+service.Name+"/Stream", &emptypb.Empty{}, &emptypb.Empty{}); !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED) {
				t.Errorf("a stream of calls without a token: %v", err)
			}
			asked++
			continue
		}
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.Name))
		if err != nil {
			t.Fatal(err)
		}
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			name := fmt.Sprintf("/%s/%s", service.Name, methods.Get(i).Name())
			if err := conn.Invoke(ctx, name, &emptypb.Empty{}, &emptypb.Empty{}); !api.Is(err, perdurev1.Reason_REASON_UNAUTHENTICATED) {
				t.Errorf("%s without a token: %v", name, err)
			}
			asked++
		}
	}
	if asked < 16 {
		t.Errorf("only %d methods are served: %v", asked, listed)
	}
}

// Certificates of clients may take the place of tokens.
func TestClientCertificatesInsteadOfTokens(t *testing.T) {
	t.Parallel() // it waits most of the time
	h := newHouse(t, func(h *house, cfg *embed.Config) { cfg.TLSClientCA = filepath.Join(h.dir, "ca") })
	other := certstest.NewAuthority(t, "other")
	ask := func(by *certstest.Authority) error {
		options := client.TLSOptions{CAFile: filepath.Join(h.dir, "ca")}
		if by != nil {
			options.CertFile, options.KeyFile = certstest.WritePair(t, t.TempDir(), "client",
				by.Issue(t, certstest.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}))
		}
		timeout := 2 * time.Second
		if by == h.ca {
			timeout = testTimeout
		}
		c, err := client.Dial(client.Options{Addrs: []string{h.GRPCAddr()}, TLS: &options, Timeout: timeout, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, err := range c.List(context.Background(), client.ListOptions{}) {
			return err
		}
		return nil
	}
	if err := ask(h.ca); err != nil {
		t.Error(err)
	}
	for name, by := range map[string]*certstest.Authority{"another authority's": other, "none": nil} {
		if err := ask(by); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	conn, err := tls.Dial("tcp", h.HTTPAddr(), h.trust())
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") // the refusal shows in the answer
		var answer []byte
		if answer, err = io.ReadAll(conn); err == nil {
			t.Errorf("HTTP without a certificate is answered: %q", answer)
		}
	}
}

// Three members whose peer ports and gossip are secured. Strangers get no further than the door; the
// members move to another authority while they serve.
func TestSecuredMembers(t *testing.T) {
	t.Parallel() // it waits most of the time
	dir := t.TempDir()
	ca, next := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "next")
	keys := certstest.Write(t, dir, "gossip", []byte("bm90IGEgc2VjcmV0OiAzMiBieXRlcyBvZiB0ZXh0ISE=\n"))
	secure := func(cfg *embed.Config, place string, by *certstest.Authority) {
		cfg.GossipKeyFile = keys
		cfg.PeerTLSCert, cfg.PeerTLSKey = certstest.WritePair(t, dir, place, by.Issue(t, certstest.Leaf{}))
		cfg.PeerTLSCA = certstest.Write(t, dir, place+".ca", by.PEM)
	}
	cfgs := memberConfigs(t)
	for i := range cfgs {
		secure(&cfgs[i], cfgs[i].NodeID, ca)
	}
	nodes := startAll(t, cfgs...)
	c := clusterClient(t, cfgs...)
	ctx, cancel := context.WithTimeout(context.Background(), 4*testTimeout)
	defer cancel()
	create := func(id string) {
		t.Helper()
		if _, err := c.CreatePromise(ctx, id, client.PromiseOptions{Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	create("before")

	// The peer port refuses every caller without a certificate of the authority.
	for name, cfg := range map[string]*tls.Config{
		"no certificate":      {InsecureSkipVerify: true},
		"another authority's": {InsecureSkipVerify: true, Certificates: []tls.Certificate{pairOf(t, next)}},
	} {
		conn, err := tls.Dial("tcp", cfgs[0].PeerAddr, cfg)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(testTimeout))
			_, err = conn.Read(make([]byte, 1)) // with TLS 1.3 the refusal comes after the handshake
			conn.Close()
		}
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, want a refusal by TLS", name, err)
		}
	}

	// All move to the next authority: first they believe both, then they show the new one's certificates.
	both := append(bytes.Clone(ca.PEM), next.PEM...)
	reloaded := func(times int) {
		t.Helper()
		for _, n := range nodes {
			count := func() int {
				n.log.mu.Lock()
				defer n.log.mu.Unlock()
				return strings.Count(n.log.b.String(), "event=certificate_reloaded")
			}
			eventually(t, n.cfg.NodeID+" has its new files", func() bool { return count() >= times }, func() string { return fmt.Sprint(count()) })
		}
	}
	for _, cfg := range cfgs {
		certstest.Write(t, dir, cfg.NodeID+".ca", both)
	}
	reloaded(1)
	for _, cfg := range cfgs {
		certstest.WritePair(t, dir, cfg.NodeID, next.Issue(t, certstest.Leaf{}))
	}
	reloaded(2)
	for _, cfg := range cfgs {
		certstest.Write(t, dir, cfg.NodeID+".ca", next.PEM)
	}
	reloaded(3)
	create("between")

	// A member that starts again finds the others by what they show now.
	if err := nodes[2].stop(); err != nil {
		t.Fatal(err)
	}
	nodes[2] = startAll(t, cfgs[2])[0]
	until(t, "all nodes are reached", func() error {
		st, err := c.ClusterStatus(ctx)
		if err != nil {
			return err
		}
		for _, n := range st.Nodes {
			if !n.Reachable {
				return fmt.Errorf("%s is not reached: %s", n.NodeId, n.Problem)
			}
		}
		return nil
	})
	create("after")

	// One that has only the old authority's certificate comes into no cluster.
	stray := memberConfigs(t)[0]
	stray.NodeID, stray.Join = "n3", cfgs[0].Join
	secure(&stray, "stray", ca)
	if err := nodes[2].stop(); err != nil {
		t.Fatal(err)
	}
	short, cancelShort := context.WithTimeout(ctx, 5*time.Second)
	defer cancelShort()
	stray.Logger = slog.New(slog.DiscardHandler)
	if n, err := embed.Start(short, stray); err == nil {
		_ = n.Close(ctx)
		t.Error("a node with a certificate of the old authority was let in")
	}
}

func pairOf(t *testing.T, ca *certstest.Authority) tls.Certificate {
	t.Helper()
	pem := ca.Issue(t, certstest.Leaf{})
	pair, err := tls.X509KeyPair(pem.Cert, pem.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
