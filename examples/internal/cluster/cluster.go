// Package cluster connects an example to the cluster at --addr, or starts a node for it.
//
// It parses the address, asks the cluster for its id, and sets up the example's own node. It answers within
// 10 s, with messages for the user of the example. It keeps no state: a node's data is in the folder that the
// example names. A crash loses nothing acknowledged.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/status"

	"perdure/client"
	"perdure/embed"
)

// AnswerTime bounds the wait for a cluster's id; a cluster without an answer by then counts as absent. Only a process
// that tests an absent cluster sets it, before it calls anything.
var AnswerTime = 10 * time.Second

// SplitAddrs reads --addr: addresses with commas between them.
func SplitAddrs(text string) (addrs []string, err error) {
	for _, addr := range strings.Split(text, ",") {
		addr = strings.TrimSpace(addr)
		if _, port, err := net.SplitHostPort(addr); (err != nil || port == "") && !strings.Contains(addr, "/") { // unix:///…
			return nil, fmt.Errorf("--addr %q: not host:port", addr)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// Which asks the cluster behind opts for its id, and returns the namespace of the options.
func Which(ctx context.Context, opts client.Options) (cluster, namespace string, err error) {
	opts.Logger = slog.New(slog.DiscardHandler) // what goes wrong is said once, at the end
	c, err := client.Dial(opts)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	cluster, err = ID(ctx, c)
	switch {
	case err != nil && ctx.Err() != nil:
		err = errors.New("stopped before a node answered")
	case client.Unavailable(err):
		err = fmt.Errorf("no node answers at %s (%s): start one (go run ./cmd/node dev, or deploy/three-nodes.sh), or see to --addr",
			strings.Join(opts.Addrs, ","), lastProblem(err))
	}
	return cluster, c.Namespace(), err
}

// ID is the unique id that a cluster got when it was founded.
func ID(ctx context.Context, c *client.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	s, err := c.ClusterStatus(ctx)
	if err == nil && s.GetClusterId() == "" {
		err = errors.New("the node reports no cluster id")
	}
	return s.GetClusterId(), err
}

// lastProblem is the error of a call's last attempt, without the earlier ones.
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

// Start starts a node of the example's own, at ports that the system chooses, with its data in dir.
func Start(ctx context.Context, dir string, log *slog.Logger) (*embed.Node, error) {
	return embed.Start(ctx, embed.Config{
		DataDir:  dir,
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Logger: log,
	})
}

// Stop stops it in order, within 10 s.
func Stop(node *embed.Node, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		log.Warn("node did not stop in order", "err", err)
	}
}
