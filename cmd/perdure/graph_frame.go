package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// Styles of a terminal, as its codes.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// piece is a text in one style; row is a line of them.
type piece struct{ style, text string }
type row []piece

// text is the line, cut to so many characters so that it does not wrap.
func (r row) text(width int, colour bool) string {
	var b strings.Builder
	for i, p := range r {
		text := p.text
		if n := utf8.RuneCountInString(text); n > width || n == width && i < len(r)-1 {
			text = string([]rune(text)[:max(0, width-1)]) + "…"
		}
		width -= utf8.RuneCountInString(text)
		if colour && p.style != plain && text != "" {
			text = "\x1b[" + p.style + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
		if width <= 0 {
			break
		}
	}
	return b.String()
}

var nodeStyles = map[perdurev1.NodeStatus]string{
	perdurev1.NodeStatus_NODE_STATUS_COMPLETED: green,
	perdurev1.NodeStatus_NODE_STATUS_SKIPPED:   dim,
	perdurev1.NodeStatus_NODE_STATUS_FAILED:    red,
	perdurev1.NodeStatus_NODE_STATUS_RUNNING:   cyan,
	perdurev1.NodeStatus_NODE_STATUS_WAITING:   yellow,
}

// graphFrame is the picture of a run for a terminal of this size: the run's summary, and then the active
// nodes, as many as fit.
func (a *app) graphFrame(s *perdurev1.GraphStatus, width, height int) []row {
	style := map[string]string{"completed": green, "failed": red, "stuck": red, "cancelled": red, "suspended": yellow}[s.GetPhase()]
	title := row{{bold, titleOf(s)}, {plain, "  "}, {style, phaseText(s)}, {plain, "  " + runAge(a, s)}}
	rows := []row{title, progressBar(s, width), countRow(s)}
	if s.GetProblem() != "" {
		rows = append(rows, row{{red, "problem: " + printable(s.GetProblem())}})
	}
	nodes := busyNodes(s)
	space := max(1, height-len(rows)-2) // one line for the cursor, one for the number of hidden nodes
	more := 0
	if len(nodes) > space {
		nodes, more = nodes[:space], len(nodes)-space
	}
	idWidth := 0
	for _, n := range nodes {
		idWidth = max(idWidth, utf8.RuneCountInString(orDash(n.GetId())))
	}
	idWidth = min(idWidth, max(8, width/3))
	for _, n := range nodes {
		rows = append(rows, a.nodeRow(n, idWidth))
	}
	if more > 0 {
		rows = append(rows, row{{dim, fmt.Sprintf("  … and %d more", more)}})
	}
	return rows
}

// progressBar is the run's progress: completed and skipped, failed, under way, to come.
func progressBar(s *perdurev1.GraphStatus, width int) row {
	counts, total := nodeCounts(s), len(s.GetNodes())
	good := counts[perdurev1.NodeStatus_NODE_STATUS_COMPLETED] + counts[perdurev1.NodeStatus_NODE_STATUS_SKIPPED]
	failed := counts[perdurev1.NodeStatus_NODE_STATUS_FAILED]
	busy := counts[perdurev1.NodeStatus_NODE_STATUS_RUNNING] + counts[perdurev1.NodeStatus_NODE_STATUS_WAITING]
	label := fmt.Sprintf(" %d/%d", good+failed, total)
	cells := min(50, max(10, width-len(label)-3))
	// Each border is rounded down, so that nothing looks finished before it is.
	border := func(n int) int { return n * cells / max(total, 1) }
	g, f, b := border(good), border(good+failed), border(good+failed+busy)
	return row{{green, strings.Repeat("█", g)}, {red, strings.Repeat("▓", f-g)}, {cyan, strings.Repeat("▒", b-f)},
		{dim, strings.Repeat("░", cells-b)}, {plain, label}}
}

// countRow counts nodes by status.
func countRow(s *perdurev1.GraphStatus) row {
	counts := nodeCounts(s)
	var r row
	for _, status := range nodeStatuses {
		if n := counts[status]; n > 0 {
			if len(r) > 0 {
				r = append(r, piece{plain, ", "})
			}
			r = append(r, piece{nodeStyles[status], fmt.Sprintf("%d %s", n, nodeStatusText(status))})
		}
	}
	return r
}

// busyNodes are the active nodes in display order: failed ones, running ones after a failed attempt, other running
// ones, waiting ones. Of an ended run they are the failed ones alone.
func busyNodes(s *perdurev1.GraphStatus) []*perdurev1.GraphNodeState {
	rank := func(n *perdurev1.GraphNodeState) int {
		switch {
		case n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_FAILED && !n.GetByPropagation():
			return 1
		case client.Ended(s.GetStatus()):
			return 0
		case n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_RUNNING && n.GetFailure() != nil:
			return 2
		case n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_RUNNING:
			return 3
		case n.GetStatus() == perdurev1.NodeStatus_NODE_STATUS_WAITING:
			return 4
		}
		return 0
	}
	var busy []*perdurev1.GraphNodeState
	for _, n := range s.GetNodes() {
		if rank(n) > 0 {
			busy = append(busy, n)
		}
	}
	slices.SortStableFunc(busy, func(x, y *perdurev1.GraphNodeState) int { return rank(x) - rank(y) })
	return busy
}

// nodeRow is one node of a picture.
func (a *app) nodeRow(n *perdurev1.GraphNodeState, idWidth int) row {
	id := orDash(n.GetId())
	if utf8.RuneCountInString(id) > idWidth {
		id = string([]rune(id)[:idWidth-1]) + "…"
	}
	rest := fmt.Sprintf("  %-6s %s", dash(a.nodeAge(n)), orDash(n.GetKind()))
	if n.GetAttempt() > 1 {
		rest += fmt.Sprintf(", attempt %d", n.GetAttempt())
	}
	note := a.nodeNote(n)
	if n.GetSignal() != "" && n.GetKind() == "signal "+n.GetSignal() {
		note = "" // the kind says it
	}
	if note != "" {
		rest += ": " + note
	}
	pad := strings.Repeat(" ", max(0, idWidth-utf8.RuneCountInString(id)))
	return row{{nodeStyles[shownStatus(n)], fmt.Sprintf("  %-9s", nodeStatusText(shownStatus(n)))}, {plain, id + pad + rest}}
}

// Size of a terminal that does not report one.
const (
	usualWidth  = 80
	usualHeight = 24
)
