package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/graph/draw"
)

// Short names of a node's states.
const (
	pending   = perdurev1.NodeStatus_NODE_STATUS_PENDING
	running   = perdurev1.NodeStatus_NODE_STATUS_RUNNING
	waiting   = perdurev1.NodeStatus_NODE_STATUS_WAITING
	completed = perdurev1.NodeStatus_NODE_STATUS_COMPLETED
	failed    = perdurev1.NodeStatus_NODE_STATUS_FAILED
	skipped   = perdurev1.NodeStatus_NODE_STATUS_SKIPPED
)

// stateOf is the state of a node as a word.
func stateOf(n *perdurev1.GraphNodeState) string {
	return strings.ToLower(strings.TrimPrefix(n.GetStatus().String(), "NODE_STATUS_"))
}

func ended(n *perdurev1.GraphNodeState) bool {
	return n.GetStatus() == completed || n.GetStatus() == failed || n.GetStatus() == skipped
}

func endedNodes(s *perdurev1.GraphStatus) (count int) {
	for _, n := range s.GetNodes() {
		if ended(n) {
			count++
		}
	}
	return count
}

// progress prints a line whenever a run has changed: which nodes have ended since the last line, and the
// run's current front.
type progress struct {
	w     io.Writer
	began time.Time
	last  map[string]string
}

func (p *progress) show(s *perdurev1.GraphStatus) {
	first := p.last == nil
	if first {
		p.last = map[string]string{}
	}
	over := map[string][]string{} // by state
	var front, news []string
	for _, n := range s.GetNodes() {
		now := stateOf(n)
		if n.GetStatus() == running || n.GetStatus() == waiting {
			text := n.GetId()
			switch {
			case n.GetStatus() == waiting:
				text += fmt.Sprintf(" (waits for %q)", n.GetSignal())
			case n.GetRetryAtMs() != 0:
				text += " (pauses)"
			case n.GetAttempt() > 1:
				text += fmt.Sprintf(" (attempt %d)", n.GetAttempt())
			}
			front = append(front, text)
		}
		if n.GetRetryAtMs() != 0 {
			now += fmt.Sprint(" again ", n.GetRetryAtMs())
		}
		if p.last[n.GetId()] == now {
			continue
		}
		p.last[n.GetId()] = now
		switch {
		case n.GetRetryAtMs() != 0:
			news = append(news, fmt.Sprintf("%s failed and is tried again: %s", n.GetId(), n.GetFailure().GetMessage()))
		case !ended(n) || first: // what ended before is only counted
		case n.GetByPropagation():
			over["failed with what it comes after"] = append(over["failed with what it comes after"], n.GetId())
		default:
			over[stateOf(n)] = append(over[stateOf(n)], n.GetId())
		}
	}
	for _, state := range []string{"completed", "skipped", "failed", "failed with what it comes after"} {
		if ids := over[state]; len(ids) > 0 {
			news = append(news, state+" "+strings.Join(ids, ", "))
		}
	}
	line := fmt.Sprintf("%5.1f s  %2d/%d  ", time.Since(p.began).Seconds(), endedNodes(s), len(s.GetNodes()))
	indent := "\n" + strings.Repeat(" ", len(line)-1)
	if len(front) > 0 {
		news = append(news, "now "+strings.Join(front, ", "))
	} else if len(news) == 0 {
		return
	}
	fmt.Fprintln(p.w, line+strings.Join(news, indent))
}

// table prints the outcome of each node.
func table(ctx context.Context, c *client.Client, s *perdurev1.GraphStatus, w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "  node\toutcome\tattempts\twhat\n")
	for _, n := range s.GetNodes() {
		text, err := whatOf(ctx, c, s.GetId(), n)
		if err != nil {
			return err
		}
		attempts := "-"
		if n.GetAttempt() > 0 {
			attempts = fmt.Sprint(n.GetAttempt())
		}
		if n.GetKept() {
			attempts += " (before)"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", n.GetId(), stateOf(n), attempts, text)
	}
	return t.Flush()
}

// whatOf describes a node's outcome in a few words.
func whatOf(ctx context.Context, c *client.Client, run string, n *perdurev1.GraphNodeState) (string, error) {
	switch {
	case n.GetByPropagation():
		return "what it comes after has failed", nil
	case n.GetFailure().GetMessage() != "":
		return n.GetFailure().GetMessage(), nil
	case n.GetStatus() == skipped:
		// Its function has skipped it: the reason is the failure of the attempt, an execution of its own.
		_, err := c.Result(ctx, n.GetAttemptId())
		var end *client.ExecutionError
		if errors.As(err, &end) {
			return end.Failure.GetMessage(), nil
		}
		return "", err
	case n.GetStatus() != completed:
		return "", nil
	case strings.HasPrefix(n.GetKind(), "signal"):
		o, err := c.NodeOutcome(ctx, run, n.GetId())
		return string(o.GetOutput()), err
	}
	out, err := outcome[struct{ Note string }](ctx, c, run, n.GetId())
	return out.Note, err
}

// drawRun writes a picture of the run as it is into the work folder.
func drawRun(work string, g *perdurev1.Graph, s *perdurev1.GraphStatus) error {
	states := map[string]string{}
	for _, n := range s.GetNodes() {
		states[n.GetId()] = stateOf(n)
	}
	svg := draw.SVG(g, func(node string) string { return states[node] }, draw.Options{})
	return writeFile(filepath.Join(work, pictureName), svg)
}
