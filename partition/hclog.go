package partition

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// libraryLogger gives hashicorp/raft and its neighbours the node's logger, under a name. Their lines keep their own
// words. Which of them are events that an operator may rely on, and which are routine, is in lineOf; what
// repeats itself is counted (see episodes). At debug level every line comes through as it was written.
func (e *episodes) libraryLogger(name string) hclog.Logger {
	level := hclog.Warn
	if e.log.Enabled(context.Background(), slog.LevelDebug) {
		level = hclog.Debug
	}
	base := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: name, Level: hclog.Off})
	base.RegisterSink(&slogSink{episodes: e, name: name, level: level})
	return base
}

type slogSink struct {
	*episodes
	name  string
	level hclog.Level
}

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	if level < s.level {
		return
	}
	ctx := context.Background()
	own := []any{"event", "library", "library", s.name}
	if level < hclog.Warn {
		at := slog.LevelDebug
		if level == hclog.Info {
			at = slog.LevelInfo
		}
		s.log.Log(ctx, at, msg, append(own, args...)...)
		return
	}
	s.log.Log(ctx, slog.LevelDebug, msg, append(own, args...)...)
	switch l := lineOf(level, msg, args); {
	case l.routine:
	case l.peer != "":
		s.failed(l.peer, s.name, msg, l.err)
	default:
		key := s.name + " " + msg
		if l.shared {
			key = l.event
		}
		s.repeatable(key, l.level, msg, append([]any{"event", l.event, "library", s.name}, args...))
	}
}

// A line of a library, and what it is for an operator.
type line struct {
	routine bool   // belongs to every start, election or catching up: for debugging only
	peer    string // it says that this peer (its server id or its address) did not answer
	err     any    // why not
	event   string
	level   slog.Level
	shared  bool // one event for all libraries and wordings
}

// peerOf says in which argument a message about a peer that did not answer has the peer.
var peerOf = map[string]string{
	"failed to heartbeat to":                  "peer",
	"failed to appendEntries to":              "peer",
	"failed to pipeline appendEntries":        "peer",
	"failed to start pipeline replication to": "peer",
	"failed to send snapshot to":              "peer",
	"failed to make requestVote RPC":          "target",
	"failed to contact":                       "server-id",
}

// routine are warnings of the library that belong to every election and to every replica that catches up. The
// partition's own events and the metrics say more.
var routine = []string{
	"heartbeat timeout reached, starting election",
	"appendEntries rejected, sending older logs",
	"failed to get previous log",
	"previous log term mis-match",
	"clearing log suffix",
	"new leader elected, stepping down",
	"duplicate requestVote from",
}

// events are the lines that have an event of their own, by how they begin.
var events = []struct {
	begins, event string
	level         slog.Level
	shared        bool
}{
	{"failed to contact quorum of nodes", "quorum_lost", slog.LevelWarn, false},
	{"Election timeout reached", "election_undecided", slog.LevelWarn, false},
	{"rejecting vote request", "vote_refused", slog.LevelInfo, true},
	{"rejecting pre-vote request", "vote_refused", slog.LevelInfo, true},
	{"peer has newer term", "leader_superseded", slog.LevelInfo, true},
	{"failed to decode incoming command", "peer_connection_broken", slog.LevelInfo, true},
	{"failed to flush response", "peer_connection_broken", slog.LevelInfo, true},
}

// lineOf sorts a warning or an error of a library.
func lineOf(level hclog.Level, msg string, args []any) line {
	for _, begins := range routine {
		if strings.HasPrefix(msg, begins) {
			return line{routine: true}
		}
	}
	if key, about := peerOf[msg]; about {
		var l line
		for i := 0; i+1 < len(args); i += 2 {
			switch args[i] {
			case key:
				l.peer = peerText(args[i+1])
			case "error":
				l.err = args[i+1]
			}
		}
		if l.peer != "" {
			return l
		}
	}
	for _, e := range events {
		if strings.HasPrefix(msg, e.begins) {
			return line{event: e.event, level: e.level, shared: e.shared}
		}
	}
	if level == hclog.Warn {
		return line{event: "library", level: slog.LevelWarn}
	}
	return line{event: "library", level: slog.LevelError}
}

// peerText is the server id of a peer as the library gives it, or its address where that is all it gives.
func peerText(v any) string {
	switch p := v.(type) {
	case raft.Server:
		return string(p.ID)
	case raft.ServerID:
		return string(p)
	case raft.ServerAddress:
		return string(p)
	case string:
		return p
	}
	return ""
}

// pebbleLogger gives Pebble the node's logger. Its routine lines are for debugging only.
type pebbleLogger struct {
	log   *slog.Logger
	fatal func(err error)
}

// Infof implements pebble.Logger.
func (l pebbleLogger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(fmt.Sprintf(format, args...), "event", "library", "library", "pebble")
	}
}

// Errorf implements pebble.Logger.
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error(fmt.Sprintf(format, args...), "event", "library", "library", "pebble")
}

// Fatalf implements pebble.Logger. Pebble expects it not to return: what it was doing cannot go on.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.fatal(err)
	select {}
}
