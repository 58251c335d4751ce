package raftlogger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Named returns the logger for a library, which appears as library=name in its lines.
func (l *Logger) Named(name string) hclog.Logger {
	level := hclog.Warn
	if l.opts.Log.Enabled(context.Background(), slog.LevelDebug) {
		level = hclog.Debug
	}
	base := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: name, Level: hclog.Off})
	base.RegisterSink(&sink{Logger: l, name: name, level: level})
	return base
}

type sink struct {
	*Logger
	name  string
	level hclog.Level
}

// Accept implements hclog.SinkAdapter.
func (s *sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
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
		s.opts.Log.Log(ctx, at, msg, append(own, args...)...)
		return
	}
	s.opts.Log.Log(ctx, slog.LevelDebug, msg, append(own, args...)...)
	switch c := classify(level, msg, args); {
	case c.routine:
	case c.peer != "":
		s.peerFailed(c.peer, s.name, msg, c.err)
	default:
		key := s.name + " " + msg
		if c.shared {
			key = c.event
		}
		s.repeatable(key, c.level, msg, append([]any{"event", c.event, "library", s.name}, args...))
	}
}

// class is what a library's line means to an operator.
type class struct {
	routine bool   // part of every start, election or catching up: a debug line
	peer    string // the peer that did not answer, by server id or address
	err     any    // why it did not
	event   string
	level   slog.Level
	shared  bool // one incident for all libraries and wordings
}

// peerOf is the argument that names the peer, by the message about a peer that did not answer.
var peerOf = map[string]string{
	"failed to heartbeat to":                  "peer",
	"failed to appendEntries to":              "peer",
	"failed to pipeline appendEntries":        "peer",
	"failed to start pipeline replication to": "peer",
	"failed to send snapshot to":              "peer",
	"failed to make requestVote RPC":          "target",
	"failed to contact":                       "server-id",
}

// routine are the beginnings of warnings that are part of every election and of every replica that catches up. The
// events of package partition and its metrics say more.
var routine = []string{
	"heartbeat timeout reached, starting election",
	"appendEntries rejected, sending older logs",
	"failed to get previous log",
	"previous log term mis-match",
	"clearing log suffix",
	"new leader elected, stepping down",
	"duplicate requestVote from",
}

// events are the lines with an event of their own, by their beginning.
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

// classify classifies a warning or an error of a library.
func classify(level hclog.Level, msg string, args []any) class {
	for _, begins := range routine {
		if strings.HasPrefix(msg, begins) {
			return class{routine: true}
		}
	}
	if key, about := peerOf[msg]; about {
		var c class
		for i := 0; i+1 < len(args); i += 2 {
			switch args[i] {
			case key:
				c.peer = peerText(args[i+1])
			case "error":
				c.err = args[i+1]
			}
		}
		if err, is := c.err.(error); is && errors.Is(err, raft.ErrLeadershipLost) {
			return class{routine: true} // the peer has answered, to a leader that is none any more
		}
		if c.peer != "" {
			return c
		}
	}
	for _, e := range events {
		if strings.HasPrefix(msg, e.begins) {
			return class{event: e.event, level: e.level, shared: e.shared}
		}
	}
	if level == hclog.Warn {
		return class{event: "library", level: slog.LevelWarn}
	}
	return class{event: "library", level: slog.LevelError}
}

// peerText is a peer's server id, or its address if the library gives only that.
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

// Pebble is Pebble's logger. Its routine lines are debug lines.
type Pebble struct {
	Log *slog.Logger
	// Fatal is called with an error after which Pebble's store must not be used.
	Fatal func(err error)
}

// Infof implements pebble.Logger.
func (p Pebble) Infof(format string, args ...any) {
	if p.Log.Enabled(context.Background(), slog.LevelDebug) {
		p.Log.Debug(fmt.Sprintf(format, args...), "event", "library", "library", "pebble")
	}
}

// Errorf implements pebble.Logger.
func (p Pebble) Errorf(format string, args ...any) {
	p.Log.Error(fmt.Sprintf(format, args...), "event", "library", "library", "pebble")
}

// Fatalf implements pebble.Logger. It blocks forever after Fatal: Pebble expects it not to return.
func (p Pebble) Fatalf(format string, args ...any) {
	p.Fatal(fmt.Errorf(format, args...))
	select {}
}
