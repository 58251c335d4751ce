package embed

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

	"perdure/partition"
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

// resonate makes the server of the Resonate protocol, which the HTTP port serves.
func (c *Config) resonate(parts *partition.Node, guard *auth.Guard, log *slog.Logger) *resonate.Server {
	opts := resonate.Options{
		Store:    resonate.NewStore(parts.Router(), c.ResonateNamespace, c.ResonateDottedIDs),
		Messages: poll.New(parts.Addresses(), poll.Options{Namespace: c.ResonateNamespace, Encode: resonate.MessageEncoder(c.ResonateDottedIDs)}),
		NotReady: parts.NotReady, Origins: c.ResonateOrigins, DottedIDs: c.ResonateDottedIDs, Logger: log,
	}
	if guard != nil {
		opts.Authenticate = func(r *http.Request, token string) (resonate.Caller, error) {
			admin, prefix, err := guard.ResonateCaller(token, c.ResonateNamespace, r.RemoteAddr)
			return resonate.Caller{Admin: admin, Prefix: prefix}, err
		}
	}
	return resonate.New(opts)
}

// resonateService is what a node does for clients of the Resonate protocol without being asked.
type resonateService struct {
	schedules *resonate.Scheduler
	push      *rpc.Push
}

// serveResonate starts to run schedules and to post messages, for the partitions that the node leads. HTTP targets are
// limited as HTTP nodes are: their addresses are chosen by clients, too.
func (c *Config) serveResonate(parts *partition.Node, log *slog.Logger) *resonateService {
	return &resonateService{
		schedules: resonate.StartScheduler(resonate.NewStore(parts.Router(), c.ResonateNamespace, c.ResonateDottedIDs), log),
		push: rpc.ServePush(rpc.PushConfig{Encode: resonate.MessageEncoder(c.ResonateDottedIDs), Policy: c.outbound(), Version: Version(), Logger: log},
			parts.Addresses()),
	}
}

// close ends both, while the partitions still serve.
func (s *resonateService) close() {
	s.push.Close()
	s.schedules.Close()
}
