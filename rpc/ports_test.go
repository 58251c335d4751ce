package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
)

// get reads a page of the HTTP port.
func get(t *testing.T, n *embed.Node, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(soon(t), http.MethodGet, "http://"+n.HTTPAddr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, string(b)
}

// TestMetricsOfCallersAreThere checks that METRICS.md's series of the callers' ports exist. A counter by
// reason has no sample before its first event.
func TestMetricsOfCallersAreThere(t *testing.T) {
	w := newWorld(t)
	doc, err := os.ReadFile("../partition/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, callers, found := strings.Cut(string(doc), "\n## Callers\n")
	callers, _, _ = strings.Cut(callers, "\n## ")
	names := regexp.MustCompile("(?m)^\\| `(perdure_[a-z_]+)`").FindAllStringSubmatch(callers, -1)
	if !found || len(names) < 4 {
		t.Fatalf("the page names %d of them", len(names))
	}
	_, body := get(t, w.node, "/metrics")
	for _, m := range names {
		if !strings.HasSuffix(m[1], "_total") && !strings.Contains(body, "\n# TYPE "+m[1]+" ") {
			t.Errorf("the page names %s, /metrics does not", m[1])
		}
	}
}

var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^}]*\})?) ([0-9.eE+-]+|\+Inf|NaN)$`)

// metrics parses /metrics: values by name with labels.
func metrics(t *testing.T, n *embed.Node) map[string]float64 {
	t.Helper()
	code, body := get(t, n, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics answers %d", code)
	}
	out := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "# HELP ") || strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("/metrics has the line %q", line)
			continue
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Errorf("/metrics has the line %q: %v", line, err)
		}
		if _, twice := out[m[1]]; twice {
			t.Errorf("/metrics has %s twice", m[1])
		}
		out[m[1]] = v
	}
	return out
}

// TestHTTP reads every page of the HTTP port.
func TestHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("one", "unserved")
	s := w.hello(&perdurev1.Hello{WorkerId: t.Name(), Functions: []string{"f"}})
	defer s.cancel()
	for path, want := range map[string]string{
		"/":                              "perdure ",
		"/healthz":                       "ok\n",
		"/readyz":                        "ready\n",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile: total",
		"/debug/pprof/heap?debug=1":      "heap profile",
		"/debug/pprof/cmdline":           "rpc.test",
		"/debug/pprof/symbol":            "num_symbols",
	} {
		if code, body := get(t, w.node, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d, %.200q; want %q", path, code, body, want)
		}
	}
	for _, path := range []string{"/nothing", "/metrics/x", "/healthz/"} {
		if code, _ := get(t, w.node, path); code != http.StatusNotFound {
			t.Errorf("%s answers %d", path, code)
		}
	}
	resp, err := http.Post("http://"+w.node.HTTPAddr()+"/metrics", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics answers %d", resp.StatusCode)
	}

	m := metrics(t, w.node)
	for _, name := range []string{"perdure_worker_streams", "go_goroutines", "process_open_fds",
		`perdure_grpc_calls_total{code="OK",method="/perdure.v1.Executions/Start"}`,
		`perdure_grpc_call_seconds_count{method="/perdure.v1.Executions/Start"}`} {
		if m[name] < 1 {
			t.Errorf("%s is %v", name, m[name])
		}
	}
	for p := range 3 {
		label := fmt.Sprintf(`{partition="%d"}`, p)
		for _, name := range []string{"leader", "queue_depth", "elections_won_total", "commands_total", "entries_total",
			"sheds_total", "ticks_total", "messages_shipped_total", "commit_seconds_count"} {
			if _, there := m["perdure_partition_"+name+label]; !there {
				t.Errorf("perdure_partition_%s%s is missing", name, label)
			}
		}
		if m["perdure_partition_leader"+label] != 1 || m["perdure_partition_elections_won_total"+label] < 1 {
			t.Errorf("partition %d: leader %v, elections %v", p, m["perdure_partition_leader"+label], m["perdure_partition_elections_won_total"+label])
		}
	}
}

// TestHealthAndReflection asks the standard services.
func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	services := []string{"perdure.v1.Executions", "perdure.v1.Promises", "perdure.v1.Tasks"}
	health := healthv1.NewHealthClient(w.conn)
	for _, service := range append(services, "") {
		until(t, "health of "+service, func() error {
			r, err := health.Check(soon(t), &healthv1.HealthCheckRequest{Service: service})
			if err != nil || r.Status != healthv1.HealthCheckResponse_SERVING {
				return fmt.Errorf("%v, %v", r, err)
			}
			return nil
		})
	}
	if _, err := health.Check(soon(t), &healthv1.HealthCheckRequest{Service: "unserved"}); status.Code(err) != codes.NotFound {
		t.Errorf("health of an unknown service: %v", err)
	}

	s, err := reflectionv1.NewServerReflectionClient(w.conn).ServerReflectionInfo(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		t.Helper()
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
		out, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	listed := []string{}
	for _, x := range ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		listed = append(listed, x.Name)
	}
	for _, service := range append(services, "grpc.health.v1.Health") {
		if !slices.Contains(listed, service) {
			t.Errorf("reflection lists %v, not %s", listed, service)
		}
		r := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service}})
		if len(r.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("reflection has no file with %s: %v", service, r)
		}
	}
}

// TestStopIsAnnounced: when the node stops, the health service reports it and waiting calls end.
func TestStopIsAnnounced(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	w := connect(t, n)
	watch, err := healthv1.NewHealthClient(w.conn).Watch(soon(t), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for serving := false; !serving; {
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		serving = r.Status == healthv1.HealthCheckResponse_SERVING
	}
	w.start("open", "unserved")
	polls := make(chan error, 2)
	go func() {
		_, err := w.executions.Result(soon(t), &perdurev1.ResultRequest{Namespace: w.ns, Id: "open", WaitMs: 60_000})
		polls <- err
	}()
	go func() {
		_, err := w.promises.Await(soon(t), &perdurev1.AwaitPromiseRequest{Namespace: w.ns, Id: "open", WaitMs: 60_000})
		polls <- err
	}()
	s := w.hello(&perdurev1.Hello{WorkerId: "w", Functions: []string{"f"}})
	until(t, "both polls to be under way", func() error {
		if v := metrics(t, n)[`perdure_grpc_call_seconds_count{method="/perdure.v1.Executions/Start"}`]; v < 1 {
			return fmt.Errorf("%v starts", v)
		}
		return nil
	})
	began := time.Now()
	if err := finish(n); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > prompt {
		t.Errorf("the stop took %v", took)
	}
	for range 2 {
		if err := receive(t, "end of a poll", polls); status.Code(err) != codes.Unavailable {
			t.Errorf("a poll ended with %v", err)
		}
	}
	if m := receive(t, "drain", s.pushed); m.GetDrain() == nil {
		t.Errorf("the worker got %v", m)
	}
	if err := receive(t, "end of the worker's stream", s.ended); status.Code(err) != codes.Unavailable {
		t.Errorf("the worker's stream ended with %v", err)
	}
	for {
		r, err := watch.Recv()
		if err == nil && r.Status == healthv1.HealthCheckResponse_SERVING {
			continue
		}
		if err == nil && r.Status != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health says %v", r)
		}
		break
	}
}

// noise lists bytes that a port may receive.
func noise() map[string][]byte {
	random := make([]byte, 64<<10)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(random) // never fails
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	return map[string][]byte{
		"random":                random,
		"zeros":                 make([]byte, 64<<10),
		"one byte":              {'P'},
		"half a preface":        []byte(preface[:10]),
		"preface":               []byte(preface),
		"preface and noise":     append([]byte(preface), random...),
		"preface, huge frame":   append([]byte(preface), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1),
		"preface, bad settings": append([]byte(preface), 0, 0, 5, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5),
		"HTTP/1":                []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
		"HTTP/1 without end":    []byte("GET /metrics HTTP/1.1\r\nHost: "),
		"HTTP/1 huge header":    append([]byte("GET / HTTP/1.1\r\nX: "), bytes.Repeat([]byte{'x'}, 256<<10)...),
		"TLS":                   {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03},
	}
}

// TestNoise sends both ports what they are not for. Other callers are not disturbed, and nothing stays open.
func TestNoise(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	w := connect(t, n)
	w.start("quiet", "unserved")
	stop := make(chan struct{})
	var reading sync.WaitGroup
	reading.Add(1)
	go func() { // a caller that must not notice
		defer reading.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.executions.Describe(soon(t), &perdurev1.DescribeRequest{Namespace: w.ns, Id: "quiet"}); err != nil {
				t.Errorf("an innocent reader: %v", err)
				return
			}
		}
	}()
	var open []net.Conn
	for _, addr := range []string{n.GRPCAddr(), n.HTTPAddr()} {
		for what, b := range noise() {
			for _, stay := range []bool{false, true} {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
					t.Fatal(err)
				}
				_, _ = c.Write(b) // the port may hang up while it is still being talked at
				if !stay {
					c.Close()
					continue
				}
				open = append(open, c)
			}
		}
	}
	for range 20 { // half open: connected, and silent
		c, err := net.Dial("tcp", n.GRPCAddr())
		if err != nil {
			t.Fatal(err)
		}
		d, err := net.Dial("tcp", n.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c, d)
	}

	// The right protocols on the wrong ports.
	if resp, err := http.Get("http://" + n.GRPCAddr() + "/healthz"); err == nil {
		resp.Body.Close()
		t.Errorf("the gRPC port answers HTTP/1 with %v", resp.Status)
	}
	if c, err := tls.Dial("tcp", n.GRPCAddr(), &tls.Config{InsecureSkipVerify: true}); err == nil {
		c.Close()
		t.Error("the gRPC port speaks TLS")
	}
	wrong, err := grpc.NewClient(n.HTTPAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if _, err := perdurev1.NewExecutionsClient(wrong).List(soon(t), &perdurev1.ListRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("gRPC on the HTTP port: %v", err)
	}

	// The right protocol with the wrong content.
	for what, c := range map[string]struct {
		method string
		body   []byte
		want   codes.Code
	}{
		"unknown method":  {"/perdure.v1.Executions/Nothing", nil, codes.Unimplemented},
		"unknown service": {"/perdure.v9.Executions/Start", nil, codes.Unimplemented},
		"not protobuf":    {"/perdure.v1.Executions/Start", []byte{0xff, 0xff, 0xff}, codes.Internal},
		"not text":        {"/perdure.v1.Executions/Start", []byte{0x1a, 2, 0xff, 0xfe}, codes.Internal},
		"too large":       {"/perdure.v1.Executions/Start", make([]byte, 25<<20), codes.ResourceExhausted},
	} {
		var out []byte
		if err := w.conn.Invoke(soon(t), c.method, c.body, &out, grpc.ForceCodecV2(rawCodec{})); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}

	close(stop)
	reading.Wait()
	if err := n.NotReady(); err != nil {
		t.Errorf("the node is not ready: %v", err)
	}
	if got := w.listed(); got != 1 {
		t.Errorf("%d executions are listed", got)
	}
	// An orderly stop waits for none of them.
	began := time.Now()
	if err := finish(n); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > prompt {
		t.Errorf("the stop took %v", took)
	}
	for _, c := range open {
		if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64<<10)
		for {
			if _, err := c.Read(b); err != nil {
				var ne net.Error
				if errors.As(err, &ne) && ne.Timeout() {
					t.Error("a connection is open after the stop")
				}
				break
			}
		}
		c.Close()
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// TestStopCutsOff stops a node whose callers do not end: Close still returns within its context.
func TestStopCutsOff(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c, err := net.Dial("tcp", n.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PRI * HTTP/2.0")); err != nil { // it has spoken, and says no more
		t.Fatal(err)
	}
	// An HTTP request that takes longer than the stop may.
	const takes = 4 * testTimeout
	profile := make(chan error, 1)
	go func() {
		resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", n.HTTPAddr(), takes/time.Second))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		profile <- err
	}()
	w := connect(t, n)
	w.start("x", "unserved")
	// Calls get half of it; the stores, which must be closed in order, the rest.
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	began := time.Now()
	_ = n.Close(ctx) // a connection that was cut off is no error that matters
	if took := time.Since(began); took > prompt {
		t.Errorf("a stop within 8 s took %v", took)
	}
	receive(t, "end of the profile", profile)
}

// TestTransferAlone asks the only member of a cluster to transfer its leaderships: it answers at once that
// there is no target.
func TestTransferAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := perdurev1.NewClusterClient(w.conn)
	p := uint32(1)
	for what, in := range map[string]*perdurev1.TransferLeadershipRequest{"a partition": {Partition: &p}, "all": {FromNode: "n1"}} {
		_, err := c.TransferLeadership(soon(t), in)
		refused(t, "a transfer of "+what, err, perdurev1.Reason_REASON_MEMBERSHIP_REFUSED)
	}
	if _, err := c.TransferLeadership(soon(t), &perdurev1.TransferLeadershipRequest{Partition: &p, ToNode: "n1"}); err != nil {
		t.Errorf("to the node that leads: %v", err)
	}
}
