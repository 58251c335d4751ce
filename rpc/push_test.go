package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
	"perdure/internal/testkit"
	"perdure/partition/addresses"
)

// newPush starts a Push, and returns a function that pushes to an address and waits for the outcome.
func newPush(t *testing.T, change func(*PushConfig)) (p *Push, accepted func(address string) bool) {
	t.Helper()
	d := addresses.New(addresses.Env{Clock: clock.System{}, Lifetime: context.Background(), ServerID: "n1"})
	cfg := PushConfig{Policy: loopback, Version: "test", Logger: slog.New(slog.DiscardHandler), Timeout: time.Minute,
		Encode: func(m *commandv1.AddressMessage) ([]byte, error) {
			return json.Marshal(map[string]string{"id": m.GetExecute().GetId()})
		}}
	if change != nil {
		change(&cfg)
	}
	p = ServePush(cfg, d)
	t.Cleanup(func() {
		p.Close()
		d.Close()
	})
	return p, func(address string) bool {
		over := make(chan bool, 2)
		return p.send(pushed(address), func(ok bool) { over <- ok }) && <-over
	}
}

func pushed(address string) *commandv1.AddressMessage {
	return &commandv1.AddressMessage{Address: address, Kind: &commandv1.AddressMessage_Execute{Execute: &commandv1.AddressExecute{Id: "x"}}}
}

// TestPushed checks the request that a target gets, and which answers accept a message.
func TestPushed(t *testing.T) {
	type request struct {
		*http.Request
		body string
	}
	got := make(chan request, 10)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Clone(context.Background()), string(body)}
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/", http.StatusSeeOther)
		case "/fails":
			w.WriteHeader(http.StatusInternalServerError)
		case "/created":
			w.WriteHeader(http.StatusCreated)
		}
	})
	_, accepted := newPush(t, func(c *PushConfig) { c.Bearer = "secret" })
	for path, want := range map[string]bool{"/x?y=z": true, "/created": true, "/moved": false, "/fails": false} {
		if ok := accepted(s.URL + path); ok != want {
			t.Errorf("%s is accepted: %v", path, ok)
		}
		r := <-got
		if r.Method != http.MethodPost || r.URL.String() != path || r.body != `{"id":"x"}` || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("User-Agent") != "perdure/test" {
			t.Errorf("%s %s %v %q", r.Method, r.URL, r.Header, r.body)
		}
	}
	if len(got) > 0 {
		t.Error("a redirect was followed")
	}
	s.Close()
	if accepted(s.URL) {
		t.Error("a target that is down has accepted a message")
	}
}

// A target that the policy of HTTP nodes does not allow gets no request, whatever its name resolves to.
func TestPushPolicy(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the target was called") })
	port := s.URL[strings.LastIndexByte(s.URL, ':'):]
	for what, policy := range map[string]OutboundPolicy{"off": {Networks: loopback.Networks}, "no network": {Enabled: true}, "another host": {Enabled: true, Hosts: []string{"example.com"}, Networks: loopback.Networks}} {
		_, accepted := newPush(t, func(c *PushConfig) { c.Policy = policy })
		for _, address := range []string{s.URL, "http://localhost" + port, "http://169.254.169.254/latest", "http://[::ffff:127.0.0.1]" + port, "ftp://x", "http://", "http://%zz", "://"} {
			if accepted(address) {
				t.Errorf("%s: %q has accepted a message", what, address)
			}
		}
	}
	_, accepted := newPush(t, func(c *PushConfig) {
		c.Encode = func(*commandv1.AddressMessage) ([]byte, error) { return nil, errors.New("planted") }
	})
	if accepted(s.URL) {
		t.Error("a message without a form was sent")
	}
}

// hanging is a transport whose requests hang until they are released; it counts them by host.
type hanging struct {
	mu      sync.Mutex
	now     map[string]int
	most    map[string]int
	all     int
	mostAll int
	release chan struct{}
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	host := r.URL.Host
	h.now[host]++
	h.all++
	h.most[host], h.mostAll = max(h.most[host], h.now[host]), max(h.mostAll, h.all)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.now[host]--
		h.all--
	}()
	select {
	case <-h.release:
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// Requests in progress are bounded for each host and in all; so are the messages that wait, and each gets one outcome.
func TestPushBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{now: map[string]int{}, most: map[string]int{}, release: make(chan struct{})}
		p, _ := newPush(t, func(c *PushConfig) { c.Policy.Hosts = nil })
		p.client.Transport = h
		var mu sync.Mutex
		taken, over := 0, 0
		send := func(address string) bool {
			ok := p.send(pushed(address), func(bool) {
				mu.Lock()
				defer mu.Unlock()
				over++
			})
			if ok {
				taken++
			}
			return ok
		}
		for range pushPerHost + pushWaiting {
			if !send("http://one.example/") {
				t.Fatal("refused within the bounds of a host")
			}
		}
		if send("http://one.example/") {
			t.Error("a host has more messages waiting than it may")
		}
		for host := range 2 * pushQueued {
			send("http://" + strings.Repeat("h", host/20+1) + ".example/")
		}
		synctest.Wait()
		if h.most["one.example"] != pushPerHost || h.mostAll != pushes || p.queued != pushQueued {
			t.Errorf("%d requests to one host, %d to all, %d messages wait", h.most["one.example"], h.mostAll, p.queued)
		}
		close(h.release)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if over != taken || len(p.hosts) != 0 || p.running != 0 || p.queued != 0 || p.bytes != 0 {
			t.Errorf("%d outcomes of %d messages; left are %d hosts, %d requests, %d messages, %d bytes", over, taken, len(p.hosts), p.running, p.queued, p.bytes)
		}
	})
}

// A request ends after its time, and at the latest when the node closes.
func TestPushTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{now: map[string]int{}, most: map[string]int{}, release: make(chan struct{})}
		p, accepted := newPush(t, nil)
		p.client.Transport = h
		begin := time.Now()
		if accepted("http://127.0.0.1/") || time.Since(begin) != time.Minute {
			t.Errorf("a target that does not answer: after %v", time.Since(begin))
		}
		over := make(chan bool, 1)
		p.send(pushed("http://127.0.0.1/"), func(ok bool) { over <- ok })
		testkit.Advance(time.Second)
		p.Close()
		if <-over || p.send(pushed("http://127.0.0.1/"), func(bool) { t.Error("an outcome") }) {
			t.Error("a node that has closed pushes")
		}
	})
}
