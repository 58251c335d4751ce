package id

// The limits every edge enforces, each with its own error, before anything is proposed. They are one
// list so that a server, a client and a test never disagree about a number.
const (
	// MaxIDBytes bounds every identifier that is handed in: roots, namespaces, names, keys.
	MaxIDBytes = 1 << 10
	// MaxPayloadBytes bounds one opaque value: an input, a result, an error, a signal.
	MaxPayloadBytes = 4 << 20
	// MaxCommitBytes bounds all payloads of one commit, MaxCommitItems its events, and what it sends.
	MaxCommitBytes = 16 << 20
	MaxCommitItems = 10_000
	// MaxHeartbeatBytes bounds the details that a step reports by a heartbeat.
	MaxHeartbeatBytes = 4 << 10
	// MaxTags bounds the tags of one object.
	MaxTags = 64
	// JournalWarnEvents is the length from which a journal is a long one, about which operators are warned:
	// by a metric, a log line and describe. It is not a cap: no run is ended for its size.
	JournalWarnEvents = 50_000
)
