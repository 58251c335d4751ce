package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

func (a *app) graphWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch ID",
		Short: "Draw the progress of a run until it ends",
		Long: `Draw the progress of a run until it ends. A terminal redraws the picture in place;
other output gets a line for each node that changed. With --json, every change prints
the whole status on one line.

Exit codes: 0 completed; 1 failed or cancelled, with the failure on stderr; 3 no such
run; 5 no node answered (retry).`,
		Example: `  perdure graph watch report-7
  perdure graph watch report-7 --json | jq -r .phase`,
		Args: exactly("ID"),
		RunE: a.doClient(func(ctx context.Context, c *client.Client, args []string) error {
			return a.watchGraph(ctx, c, args[0])
		}),
	}
}

// watcher shows the statuses of a run, one after the other.
type watcher interface {
	show(s *perdurev1.GraphStatus)
	// tick shows the last status again: ages have grown.
	tick()
}

// ticksOf is how often ages are redrawn.
const ticksOf = time.Second

// watchGraph shows a run until it has ended, and returns the run's error.
func (a *app) watchGraph(ctx context.Context, c *client.Client, id string) error {
	var w watcher = &graphLines{a: a}
	var ticks <-chan time.Time
	term, _ := a.lookup("TERM")
	switch {
	case a.json:
		w = &graphRows{a: a}
	case a.terminal && term != "dumb":
		_, plain := a.lookup("NO_COLOR")
		w = &graphScreen{a: a, colour: !plain}
		ticker := time.NewTicker(ticksOf)
		defer ticker.Stop()
		ticks = ticker.C
	}
	type update struct {
		status *perdurev1.GraphStatus
		err    error
	}
	updates := make(chan update)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer close(updates)
		for s, err := range c.WatchGraph(watching, id) {
			select {
			case updates <- update{s, err}:
			case <-watching.Done():
				return
			}
		}
	}()
	var last *perdurev1.GraphStatus
	for {
		select {
		case u, more := <-updates:
			switch {
			case !more && !client.Ended(last.GetStatus()):
				return ctx.Err() // the watching ended, not the run
			case !more:
				return a.endOfRun(ctx, c, id, last)
			case u.err != nil:
				return u.err
			}
			last = u.status
			w.show(last)
		case <-ticks:
			w.tick()
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := a.out.Flush(); err != nil {
			return err
		}
	}
}

// endOfRun is the error of a run that has not completed.
func (a *app) endOfRun(ctx context.Context, c *client.Client, id string, last *perdurev1.GraphStatus) error {
	if last.GetStatus() == perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
		return nil
	}
	if _, done, err := c.PollResult(ctx, id, 0); done && err != nil {
		return err
	}
	// It runs again already, or is gone: the last status that was seen is its end.
	return &client.ExecutionError{ID: id, Status: last.GetStatus(), Failure: &perdurev1.Failure{Type: last.GetPhase(), Message: last.GetProblem()}}
}

// graphRows prints each status as JSON.
type graphRows struct{ a *app }

func (r *graphRows) show(s *perdurev1.GraphStatus) {
	_ = r.a.printJSON(messageObject(s.ProtoReflect()))
}
func (r *graphRows) tick() {}

// graphLines prints each change as a line: for logs and pipes.
type graphLines struct {
	a           *app
	incarnation uint64
	known       map[string]string // what was said last of each node
	begun       bool
	phase       string
}

func (l *graphLines) tick() {}

func (l *graphLines) show(s *perdurev1.GraphStatus) {
	first := !l.begun || l.incarnation != s.GetIncarnation()
	if first {
		l.begun, l.incarnation, l.known, l.phase = true, s.GetIncarnation(), map[string]string{}, s.GetPhase()
		if !client.Ended(s.GetStatus()) {
			l.line("%s: %s, %s", titleOf(s), phaseText(s), countNodes(s))
		}
	}
	for _, n := range s.GetNodes() {
		key := fmt.Sprint(n.GetStatus(), n.GetAttempt(), n.GetRetryAtMs(), n.GetUnobserved())
		before, was := l.known[n.GetId()], shownStatus(n)
		l.known[n.GetId()] = key
		// Nodes that ended before the watch began are only counted.
		if key == before || first && (over(was) || was == perdurev1.NodeStatus_NODE_STATUS_PENDING) ||
			before == "" && was == perdurev1.NodeStatus_NODE_STATUS_PENDING {
			continue
		}
		text := orDash(n.GetId()) + " " + nodeStatusText(was)
		if n.GetAttempt() > 1 {
			text += fmt.Sprintf(", attempt %d", n.GetAttempt())
		}
		if over(was) && n.GetStartedMs() != 0 {
			text += " after " + l.a.nodeAge(n)
		}
		if note := l.a.nodeNote(n); note != "" {
			text += ": " + note
		}
		l.line("  %s", text)
	}
	if s.GetPhase() != l.phase && !client.Ended(s.GetStatus()) {
		l.line("%s: %s, %s", titleOf(s), phaseText(s), countNodes(s))
	}
	l.phase = s.GetPhase()
	if client.Ended(s.GetStatus()) {
		l.line("%s %s after %s: %s", titleOf(s), phaseText(s), runAge(l.a, s), countNodes(s))
	}
}

// line is a line with the time of day before it.
func (l *graphLines) line(format string, args ...any) {
	fmt.Fprintf(l.a.out, "%s  %s\n", l.a.now().In(l.a.zone).Format("15:04:05"), fmt.Sprintf(format, args...))
}

// over reports whether a node's status is final.
func over(s perdurev1.NodeStatus) bool {
	return s == perdurev1.NodeStatus_NODE_STATUS_COMPLETED || s == perdurev1.NodeStatus_NODE_STATUS_FAILED || s == perdurev1.NodeStatus_NODE_STATUS_SKIPPED
}

func titleOf(s *perdurev1.GraphStatus) string {
	if name := s.GetName(); name != "" && name != s.GetId() {
		return printable(s.GetId()) + " (" + printable(name) + ")"
	}
	return orDash(s.GetId())
}

// runAge is how long a run has taken, or takes already.
func runAge(a *app, s *perdurev1.GraphStatus) string {
	end := a.now().UnixMilli()
	if s.GetClosedMs() != 0 {
		end = s.GetClosedMs()
	}
	return span(time.Duration(max(0, end-s.GetCreatedMs())) * time.Millisecond)
}

// graphScreen draws a run in a terminal, each picture over the one before.
type graphScreen struct {
	a      *app
	colour bool
	last   *perdurev1.GraphStatus
	lines  int // of the current picture
}

func (g *graphScreen) tick() {
	if g.last != nil {
		g.show(g.last)
	}
}

func (g *graphScreen) show(s *perdurev1.GraphStatus) {
	g.last = s
	width, height := terminalSize(g.a.stdout)
	lines := g.a.graphFrame(s, width, height)
	var b strings.Builder
	if g.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", g.lines)
	}
	for _, l := range lines { // over the old picture: clearing it all first would flicker
		b.WriteString(l.text(width-1, g.colour))
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	g.lines = len(lines)
	_, _ = g.a.out.WriteString(b.String())
}
