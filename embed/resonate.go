package embed

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"perdure/partition"
	"perdure/partition/addresses"
	"perdure/resonate"
	"perdure/resonate/poll"
	"perdure/rpc"
	"perdure/rpc/auth"
)

// checkOrigins checks that each entry is "*" or an origin: a scheme, a host and nothing more.
func checkOrigins(value any) string {
	for _, origin := range *value.(*[]string) {
		u, err := url.Parse(origin)
		if origin != "*" && (err != nil || u.Scheme == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host) {
			return fmt.Sprintf("%q is no origin; one is written https://example.com", origin)
		}
	}
	return ""
}

// maxPushToken bounds the bytes of the token of messages for HTTP addresses.
const maxPushToken = 16 << 10

// readPushToken reads a file with a bearer token: one line of printable ASCII. Its errors never contain the token.
func readPushToken(path string) (string, error) {
	content, err := readSecret(path)
	if err != nil {
		return "", err
	}
	token := bytes.TrimSpace(content)
	if len(token) == 0 || len(token) > maxPushToken {
		return "", fmt.Errorf("token of %d bytes is not of 1 to %d", len(token), maxPushToken)
	}
	for _, b := range token {
		if b <= ' ' || b > '~' {
			return "", errors.New("a token is one line of printable characters, without spaces")
		}
	}
	return string(token), nil
}

// resonateService serves clients of the Resonate protocol: from the partitions, or in debug mode from a sandbox.
type resonateService struct {
	cfg   *Config
	parts *partition.Node
	log   *slog.Logger
	store resonate.Store
	// sandbox is nil unless in debug mode. The others are nil until start.
	sandbox   *resonate.Sandbox
	schedules *resonate.Scheduler
	push      *rpc.Push
}

// newResonate makes the service. It starts nothing but a sandbox.
func (c *Config) newResonate(parts *partition.Node, log *slog.Logger) (*resonateService, error) {
	s := &resonateService{cfg: c, parts: parts, log: log, store: resonate.NewStore(parts.Router(), c.ResonateNamespace, c.ResonateDottedIDs)}
	if !c.ResonateDebug {
		return s, nil
	}
	var err error
	if s.sandbox, err = resonate.NewSandbox(resonate.SandboxOptions{Namespace: c.ResonateNamespace, DottedIDs: c.ResonateDottedIDs,
		Retry: c.ResonateRetry, MaxStreams: c.MaxStreams, Logger: log}); err != nil {
		return nil, err
	}
	s.store = s.sandbox.Store()
	log.Warn("the Resonate protocol is in debug mode: its promises are in memory and are not replicated", "event", "resonate_debug")
	return s, nil
}

// streams has the streams of messages for clients.
func (s *resonateService) streams() *addresses.Dispatcher {
	if s.sandbox != nil {
		return s.sandbox.Streams()
	}
	return s.parts.Addresses()
}

// server makes the server of the protocol, which the HTTP port serves.
func (s *resonateService) server(guard *auth.Guard) *resonate.Server {
	c := s.cfg
	opts := resonate.Options{
		Store: s.store, Sandbox: s.sandbox,
		Messages: poll.New(s.streams(), poll.Options{Namespace: c.ResonateNamespace, Encode: resonate.MessageEncoder(c.ResonateDottedIDs)}),
		NotReady: s.parts.NotReady, Origins: c.ResonateOrigins, DottedIDs: c.ResonateDottedIDs, Logger: s.log,
	}
	if guard != nil {
		opts.Authenticate = func(r *http.Request, token string) (resonate.Caller, error) {
			admin, prefix, err := guard.ResonateCaller(token, c.ResonateNamespace, r.RemoteAddr)
			return resonate.Caller{Admin: admin, Prefix: prefix}, err
		}
	}
	return resonate.New(opts)
}

// start starts to run schedules and to post messages, for the partitions that the node leads. HTTP targets are limited as
// HTTP nodes are: their addresses are chosen by clients, too.
func (s *resonateService) start(token string) {
	if s.sandbox == nil {
		s.schedules = resonate.StartScheduler(s.store, s.parts.Router().Replicas(), s.log)
	}
	s.push = rpc.ServePush(rpc.PushConfig{Encode: resonate.MessageEncoder(s.cfg.ResonateDottedIDs), Policy: s.cfg.outbound(), Bearer: token,
		Version: Version(), Logger: s.log}, s.streams())
}

// close ends what the service has started, while the partitions still serve.
func (s *resonateService) close() {
	if s.push != nil {
		s.push.Close()
	}
	if s.schedules != nil {
		s.schedules.Close()
	}
	if s.sandbox != nil {
		s.sandbox.Close()
	}
}
