package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/addresses"
)

// Bounds of a Push.
const (
	// pushPerHost bounds the requests to one host in progress, pushes those to all.
	pushPerHost = 16
	pushes      = 256
	// pushWaiting bounds the messages that wait for one host, pushQueued those for all, pushBytes their bytes.
	pushWaiting = 256
	pushQueued  = 4096
	pushBytes   = 32 << 20
	// pushTimeout bounds one request, its connection and answer included.
	pushTimeout = 180 * time.Second
	// pushAnswer is how much of an answer is read, so that its connection is used again.
	pushAnswer = 64 << 10
)

// PushConfig configures a Push.
type PushConfig struct {
	// Encode makes the body of a message, in JSON.
	Encode func(m *commandv1.AddressMessage) ([]byte, error)
	// Policy limits the targets; its zero value refuses all.
	Policy OutboundPolicy
	// Bearer, if not empty, is sent as the token of the Authorization header, to every target.
	Bearer string
	// Version is part of the User-Agent.
	Version string
	Logger  *slog.Logger
	// Timeout replaces 180 s, unless it is 0.
	Timeout time.Duration
}

// Push posts the messages for HTTP addresses: executes and unblocks of the partitions that the node leads. A status of
// 2xx means that the target has accepted the message. Redirects are not followed. At most 16 requests to one host and
// 256 in all are in progress; further messages wait, and are refused when too many do.
//
// Clients choose the addresses, and the requests come from this machine, so Policy limits them as it limits HTTP nodes.
//
// A crash loses the messages: an execute is repeated by its task's timer, an unblock by the next leader.
type Push struct {
	cfg    PushConfig
	client *http.Client
	agent  string
	to     *addresses.Dispatcher
	ctx    context.Context
	cancel context.CancelFunc

	// mu guards the rest. running and queued are sums over hosts; bytes are those of the queued messages.
	mu      sync.Mutex
	hosts   map[string]*pushHost
	running int
	queued  int
	bytes   int64
	over    bool
	wg      sync.WaitGroup
}

// pushHost is the requests to one host. It exists while there are any.
type pushHost struct {
	running int
	waiting []pushJob
}

// pushJob is one message; over gets its outcome once.
type pushJob struct {
	url  string
	body []byte
	over func(accepted bool)
}

// ServePush starts to push the messages of a dispatcher. Close it before the partitions.
func ServePush(cfg PushConfig, to *addresses.Dispatcher) *Push {
	if cfg.Timeout == 0 {
		cfg.Timeout = pushTimeout
	}
	p := &Push{cfg: cfg, agent: "perdure/" + strings.Trim(cfg.Version, "()"), to: to, hosts: map[string]*pushHost{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.client = newOutboundClient(&p.cfg.Policy)
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	to.ServePush(p.send)
	return p
}

// Close ends the pushes in progress and waits for them.
func (p *Push) Close() {
	p.to.ServePush(nil)
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	p.client.CloseIdleConnections()
}

// send implements addresses.Push.
func (p *Push) send(m *commandv1.AddressMessage, over func(accepted bool)) bool {
	u, err := url.Parse(m.Address)
	if err != nil || u.Host == "" || p.cfg.Policy.checkURL(u) != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	host := p.hosts[u.Host]
	if host == nil {
		host = &pushHost{}
	}
	starts := host.running < pushPerHost && p.running < pushes
	if p.over || !starts && (len(host.waiting) >= pushWaiting || p.queued >= pushQueued) {
		return false
	}
	body, err := p.cfg.Encode(m)
	if err != nil || !starts && p.bytes+int64(len(body)) > pushBytes {
		return false
	}
	p.hosts[u.Host] = host
	job := pushJob{m.Address, body, over}
	if !starts {
		host.waiting = append(host.waiting, job)
		p.queued++
		p.bytes += int64(len(body))
		return true
	}
	p.start(u.Host, host, job)
	return true
}

// start posts a message, and after it those that wait. The lock is held.
func (p *Push) start(name string, host *pushHost, job pushJob) {
	host.running++
	p.running++
	p.wg.Go(func() {
		for ok := true; ok; {
			job.over(p.post(job))
			name, job, ok = p.next(name)
		}
	})
}

// next ends a request to a host and returns the message to post next: one for that host if any waits, else for another
// one that may have more requests.
func (p *Push) next(name string) (host string, job pushJob, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	h := p.hosts[name]
	h.running--
	if len(h.waiting) == 0 {
		if h.running == 0 {
			delete(p.hosts, name)
		}
		h = nil
		for other, x := range p.hosts {
			if len(x.waiting) > 0 && x.running < pushPerHost {
				name, h = other, x
				break
			}
		}
	}
	if h == nil {
		return "", pushJob{}, false
	}
	job = h.waiting[0]
	h.waiting = h.waiting[1:]
	p.queued--
	p.bytes -= int64(len(job.body))
	h.running++
	p.running++
	return name, job, true
}

// post makes one request, and reports whether the target has accepted the message.
func (p *Push) post(job pushJob) bool {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, job.url, bytes.NewReader(job.body))
	if err != nil {
		return false
	}
	req.GetBody = nil // one attempt is one request
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", p.agent)
	if p.cfg.Bearer != "" {
		req.Header.Set("Authorization", "Bearer "+p.cfg.Bearer)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		var forbidden *forbiddenError
		if errors.As(err, &forbidden) {
			p.cfg.Logger.Warn("push refused", "event", "push_forbidden", "host", short(req.URL.Host), "rule", forbidden.rule)
		}
		return false
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, pushAnswer) // its status has said enough
	return resp.StatusCode/100 == 2
}
