package partition

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger gives hashicorp/raft and its neighbours the node's logger. Their lines keep their own
// words under one event name; only warnings and errors pass unless the logger is at debug level.
func raftLogger(log *slog.Logger, name string) hclog.Logger {
	level := hclog.Warn
	if log.Enabled(context.Background(), slog.LevelDebug) {
		level = hclog.Debug
	}
	base := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: name, Level: hclog.Off})
	base.RegisterSink(&slogSink{log: log.With("event", "library", "library", name), level: level})
	return base
}

type slogSink struct {
	log   *slog.Logger
	level hclog.Level
}

// routine are warnings of the library that belong to every election; the leader's own events say more.
var routine = map[string]bool{"heartbeat timeout reached, starting election": true}

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	if level < s.level || level == hclog.Warn && routine[msg] && s.level > hclog.Debug {
		return
	}
	at := map[hclog.Level]slog.Level{
		hclog.Trace: slog.LevelDebug, hclog.Debug: slog.LevelDebug, hclog.Info: slog.LevelInfo,
		hclog.Warn: slog.LevelWarn, hclog.Error: slog.LevelError,
	}[level]
	s.log.Log(context.Background(), at, msg, args...)
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
