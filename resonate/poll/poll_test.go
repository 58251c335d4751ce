package poll

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/internal/testkit"
	"perdure/partition/addresses"
)

const (
	ns = "default"
	// limit bounds the waits for states that must come.
	limit = time.Minute
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stage is a handler behind a server, and a partition whose leader is the same node.
type stage struct {
	*addresses.Dispatcher
	t    *testing.T
	url  string
	lead *leadership
}

func newStage(t *testing.T, streams int, opts Options) *stage {
	s := &stage{t: t, lead: &leadership{delivered: make(chan addresses.Unblock, 1000)}}
	s.Dispatcher = addresses.New(addresses.Env{Clock: clock.System{}, Lifetime: context.Background(), ServerID: "n1", MaxStreams: streams})
	opts.Namespace = ns
	if opts.Encode == nil {
		opts.Encode = func(m *commandv1.AddressMessage) ([]byte, error) {
			if m.GetUnblock() != nil {
				return fmt.Appendf(nil, `{"unblock":%q}`, m.GetUnblock().Id), nil
			}
			return fmt.Appendf(nil, `{"execute":%q}`, m.GetExecute().Id), nil
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /poll/{group}/{pid}", New(s.Dispatcher, opts))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.Close()
		server.CloseClientConnections()
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	s.url = server.URL
	s.Established(s.lead)
	return s
}

func (s *stage) execute(id, address string) {
	s.Applied(s.lead, []addresses.Execute{{Namespace: ns, ID: id, Address: address, Version: 1}}, nil)
}

// leadership is a partition whose promises are all settled.
type leadership struct{ delivered chan addresses.Unblock }

func (l *leadership) Partition() uint32 { return 0 }
func (l *leadership) Promise(_ context.Context, namespace, id string) (*perdurev1.Promise, error) {
	return &perdurev1.Promise{Namespace: namespace, Id: id, Param: make([]byte, 1<<20)}, nil
}
func (l *leadership) Messages(context.Context, addresses.Selection) (addresses.Page, error) {
	return addresses.Page{}, nil
}
func (l *leadership) HTTPAddresses(context.Context, int) ([]addresses.Address, error) {
	return nil, nil
}
func (l *leadership) Delivered(_ context.Context, unblocks []addresses.Unblock) error {
	for _, u := range unblocks {
		l.delivered <- u
	}
	return nil
}

// stream is a client's.
type stream struct {
	*http.Response
	lines *bufio.Reader
}

func (s *stage) get(path string) *http.Response {
	s.t.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// open opens a stream and reads its beginning.
func (s *stage) open(path string) stream {
	s.t.Helper()
	resp := s.get(path)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("%s: %s, %s", path, resp.Status, resp.Header.Get("Content-Type"))
	}
	return stream{resp, bufio.NewReader(resp.Body)}
}

// event reads the next event, and the comments before it.
func (c stream) event(t *testing.T) (data string, comments int) {
	t.Helper()
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(line, "data: "):
			data = strings.TrimSuffix(line[6:], "\n")
		case line == "\n" && data != "":
			return data, comments
		case line == ":\n":
			comments++
		case line != "\n":
			t.Fatalf("the line %q", line)
		}
	}
}

// A stream answers 200 at once; each message is one event, and silence is broken by comments.
func TestStream(t *testing.T) {
	s := newStage(t, 10, Options{KeepAlive: time.Millisecond})
	c := s.open("/poll/a%20group%2B%C3%BC/pid%2F1")
	for range 3 {
		if line, err := c.lines.ReadString('\n'); err != nil || line != ":\n" {
			t.Fatalf("a silent stream has the line %q, %v", line, err)
		}
		if line, err := c.lines.ReadString('\n'); err != nil || line != "\n" {
			t.Fatalf("a comment ends with %q, %v", line, err)
		}
	}
	s.execute("x", "poll://uni@a group+ü/pid/1")
	if data, _ := c.event(t); data != `{"execute":"x"}` {
		t.Errorf("the event %q", data)
	}
	s.Applied(s.lead, nil, []addresses.Unblock{{Namespace: ns, ID: "y", Address: "poll://any@a group+ü"}})
	if data, _ := c.event(t); data != `{"unblock":"y"}` {
		t.Errorf("the event %q", data)
	}
	if u := <-s.lead.delivered; u.ID != "y" {
		t.Errorf("reported %v", u)
	}
}

// Names that no address can have, and bad escapes, are refused; none of them costs a stream.
func TestHostilePaths(t *testing.T) {
	s := newStage(t, 1, Options{})
	for path, status := range map[string]int{
		"/poll/g/" + strings.Repeat("p", 300):        http.StatusBadRequest,
		"/poll/" + strings.Repeat("%41", 300) + "/p": http.StatusBadRequest,
		"/poll/g/a%00b":  http.StatusBadRequest,
		"/poll/g/a%0Ab":  http.StatusBadRequest,
		"/poll/g/%FF":    http.StatusBadRequest,
		"/poll/a%2Fb/p":  http.StatusBadRequest,
		"/poll/g":        http.StatusNotFound,
		"/poll/g/p/more": http.StatusNotFound,
	} {
		if resp := s.get(path); resp.StatusCode != status {
			t.Errorf("%.40s: %s", path, resp.Status)
		}
	}
	// These do not come from Go's client.
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"/poll/g/%zz", "/poll/%/p", "/poll/g/" + strings.Repeat("x", 2<<20)} {
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		go fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target)
		answer, _ := io.ReadAll(conn) // the server may close while it is written to
		conn.Close()
		if strings.HasPrefix(string(answer), "HTTP/1.1 200") {
			t.Errorf("%.40s: %.40s", target, answer)
		}
	}
	s.open("/poll/g/p")
}

// The stream beyond the bound is refused with 503, and one that ends makes space.
func TestLimit(t *testing.T) {
	const streams = 1000
	s := newStage(t, streams, Options{})
	var last stream
	for i := range streams {
		last = s.open(fmt.Sprintf("/poll/g/%d", i))
	}
	if resp := s.get("/poll/g/more"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("stream %d of %d: %s", streams+1, streams, resp.Status)
	}
	last.Body.Close()
	testkit.Eventually(t, limit, "the closed stream to end", func() bool { return s.Streams() < streams }, nil)
	s.open("/poll/g/more")
}

// A client that does not read loses its stream, and the unblocks go to its next one.
func TestSlowReader(t *testing.T) {
	s := newStage(t, 10, Options{WriteTimeout: 20 * time.Millisecond, Encode: func(m *commandv1.AddressMessage) ([]byte, error) {
		return fmt.Appendf(nil, "{%q:%q}", m.GetUnblock().Id, strings.Repeat("x", 1<<20)), nil
	}})
	c := s.open("/poll/g/p")
	i := 0
	testkit.Eventually(t, limit, "the stream to end", func() bool { // the client's buffers fill
		s.Applied(s.lead, nil, []addresses.Unblock{{Namespace: ns, ID: fmt.Sprint(i), Address: "poll://uni@g/p"}})
		i++
		return s.Streams() == 0
	}, nil)
	c.Body.Close()
	for len(s.lead.delivered) > 0 {
		<-s.lead.delivered
	}
	next := s.open("/poll/g/p")
	s.Applied(s.lead, nil, []addresses.Unblock{{Namespace: ns, ID: "next", Address: "poll://uni@g/p"}})
	for {
		if data, _ := next.event(t); strings.HasPrefix(data, `{"next"`) {
			break
		}
	}
}

// A node that drains ends its streams after what waits for them was written, and refuses others.
func TestDrain(t *testing.T) {
	s := newStage(t, 10, Options{})
	c := s.open("/poll/g/p")
	s.execute("x", "poll://any@g")
	s.Drain()
	if data, _ := c.event(t); data != `{"execute":"x"}` {
		t.Errorf("the event %q", data)
	}
	if _, err := c.lines.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("after the drain: %v", err)
	}
	if resp := s.get("/poll/g/p"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a stream of a node that drains: %s", resp.Status)
	}
}

// A message without a form that fits into an event is not written.
func TestNoForm(t *testing.T) {
	s := newStage(t, 10, Options{Encode: func(m *commandv1.AddressMessage) ([]byte, error) {
		switch id := m.GetExecute().Id; id {
		case "error":
			return nil, errors.New("planted")
		case "lines":
			return []byte("{}\ndata: {}"), nil
		default:
			return []byte(id), nil
		}
	}})
	c := s.open("/poll/g/p")
	for _, id := range []string{"error", "lines", "good"} {
		s.execute(id, "poll://any@g")
	}
	if data, _ := c.event(t); data != "good" {
		t.Errorf("the event %q", data)
	}
}
