package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"perdure/client"
	"perdure/embed"
)

// answerTime is how long a cluster may take to answer at all, before it counts as not there.
const answerTime = 10 * time.Second

// splitAddrs reads --addr: addresses with commas between them.
func splitAddrs(text string) (addrs []string, err error) {
	for _, addr := range strings.Split(text, ",") {
		addr = strings.TrimSpace(addr)
		if _, port, err := net.SplitHostPort(addr); (err != nil || port == "") && !strings.Contains(addr, "/") { // unix:///…
			return nil, fmt.Errorf("--addr %q: not host:port", addr)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// findCluster looks whether a node of the cluster behind opts answers.
func findCluster(ctx context.Context, opts client.Options) error {
	opts.Logger = slog.New(slog.DiscardHandler) // what goes wrong is said once, at the end
	c, err := client.Dial(opts)
	if err != nil {
		return err
	}
	defer c.Close()
	asking, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err = c.ClusterStatus(asking)
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("stopped before a node answered")
	case client.Unavailable(err):
		return fmt.Errorf("no node answers at %s (%s): start one (go run ./cmd/node dev, or deploy/three-nodes.sh), or see to --addr",
			strings.Join(opts.Addrs, ","), lastProblem(err))
	}
	return err
}

// lastProblem is what the last attempt of a call met, without the story of the attempts.
func lastProblem(err error) string {
	var said interface{ GRPCStatus() *status.Status }
	if errors.As(err, &said) {
		text := said.GRPCStatus().Message()
		if _, dialing, ok := strings.Cut(text, "Error while dialing: "); ok {
			return strings.TrimSuffix(dialing, `"`)
		}
		return text
	}
	return err.Error()
}

func startNode(ctx context.Context, work string, log *slog.Logger) (*embed.Node, error) {
	return embed.Start(ctx, embed.Config{
		DataDir:  filepath.Join(work, nodeData),
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Logger: log,
	})
}

func stopNode(node *embed.Node, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		log.Warn("the node did not stop in order; its next start repairs that", "err", err)
	}
}
