package jepsen

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// verifyTimeout bounds one verification.
const verifyTimeout = 3 * time.Minute

// Verify has the command line check all that the cluster holds by every rule: first the running cluster, then, after an
// orderly stop of all nodes, each node's data. It returns what is wrong; the nodes do not run any more then. An error
// means that the command line could not be built.
func (c *Cluster) Verify(ctx context.Context) ([]string, error) {
	if _, err := c.cli(ctx); err != nil {
		return nil, err
	}
	out := c.verify(ctx, "of the running cluster", c.addressed("verify"))
	var stops sync.WaitGroup
	for _, w := range c.workers {
		if err := w.Kill(); err != nil {
			c.unexpected("stopping %s: %v", w.Name, err)
		}
	}
	for _, n := range c.nodes {
		stops.Go(func() {
			if err := n.Stop(); err != nil {
				c.unexpected("stopping %s: %v", n.Name, err)
			}
		})
	}
	stops.Wait()
	for _, n := range c.nodes {
		out = append(out, c.verify(ctx, "of the data of "+n.Name, []string{"verify", "--data", n.DataDir})...)
	}
	return out, context.Cause(ctx)
}

// cli is the command line, which is built when it is needed first.
func (c *Cluster) cli(ctx context.Context) (string, error) {
	if c.opts.CLI == "" {
		var err error
		if c.opts.CLI, err = BuildCLI(ctx, c.dir); err != nil {
			return "", err
		}
	}
	return c.opts.CLI, nil
}

// addressed adds the addresses of all nodes to a command.
func (c *Cluster) addressed(args ...string) []string {
	for _, addr := range c.Addrs() {
		args = append(args, "--addr", addr)
	}
	return args
}

// verify runs the command line, and returns its output if it finds a problem; nothing if ctx has ended.
func (c *Cluster) verify(ctx context.Context, what string, args []string) []string {
	within, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	began := time.Now()
	output, err := exec.CommandContext(within, c.opts.CLI, args...).CombinedOutput()
	c.log.Info("verification finished", "event", "verify_done", "what", what, "took", time.Since(began), "error", err)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	if failed := new(exec.ExitError); errors.As(err, &failed) && failed.ExitCode() > 0 {
		err = fmt.Errorf("exit code %d", failed.ExitCode())
	}
	text := strings.TrimSpace(string(output))
	const most = 4000
	if len(text) > most {
		text = text[:most] + " ..."
	}
	return []string{fmt.Sprintf("verify %s: %v: %s", what, err, text)}
}
