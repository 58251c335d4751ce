package embed

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"perdure/partition/admission"
	"perdure/rpc"
)

// The log stores that Config.LogStore may name.
const (
	LogStorePebble = "pebble"
	LogStoreBoltDB = "boltdb"
)

// The forms of Config.LogFormat.
const (
	LogFormatText = "text"
	LogFormatJSON = "json"
)

// Config is every setting of a node. The zero value of a field means its default (see Settings), so a program
// that embeds a node sets only the fields that differ. A Config is a value: a node copies it at start, and
// changing it later has no effect.
type Config struct {
	// File is the configuration file that Load read, empty when there was none.
	File string

	// NodeID names the node within its cluster: 1 to 64 letters, digits, '.', '_' and '-'.
	NodeID string
	// DataDir is the folder of all durable data of the node. The node makes it when missing, and checks at
	// start that it is writable.
	DataDir string

	// GRPCAddr, HTTPAddr, PeerAddr and GossipAddr are host:port. Port 0 lets the system choose.
	GRPCAddr   string
	HTTPAddr   string
	PeerAddr   string
	GossipAddr string
	// AdvertiseHost is the host, without a port, by which other nodes and clients reach this one. Empty: the
	// host of the address it listens on.
	AdvertiseHost string
	// Insecure allows an address that other machines can reach although its traffic is neither encrypted nor
	// authenticated.
	Insecure bool

	// TLSCert and TLSKey are PEM files that secure the ports for clients, gRPC and HTTP; TLSClientCA, if
	// there is one, holds the authorities of which clients must show a certificate. All files of this
	// group are followed: what replaces them is used without a restart.
	TLSCert     string
	TLSKey      string
	TLSClientCA string
	// PeerTLSCert, PeerTLSKey and PeerTLSCA are PEM files that secure the peer port: each node shows its
	// certificate, for servers and clients both, and accepts those of PeerTLSCA. All three, or none.
	PeerTLSCert string
	PeerTLSKey  string
	PeerTLSCA   string
	// GossipKeyFile holds the keys that encrypt gossip, base64 of 16, 24 or 32 bytes, one for each line. The
	// first encrypts, all decrypt. It is read at start.
	GossipKeyFile string
	// TokensFile and JWTKeyFile say whose tokens are good: a YAML list of hashes with roles, and PEM public
	// keys of the JWT issuer. Without either, no token is required. JWTIssuer and JWTAudience, if not
	// empty, must be a JWT's.
	TokensFile  string
	JWTKeyFile  string
	JWTIssuer   string
	JWTAudience string

	// Partitions is the number of partitions of a cluster that is being created: 3 to MaxPartitions. 0
	// leaves it to DefaultPartitions when the data is new, and to the data when it is not.
	Partitions int
	// Join lists gossip addresses of members, or of those that create the cluster with this one. Its own may
	// be among them.
	Join []string
	// BootstrapExpect is how many members create the cluster together: 1, for a node that is its cluster's
	// only member, or 3 to 7 and odd, which needs Join. Members that disagree about it make no cluster.
	BootstrapExpect int

	// LogStore keeps the Raft logs: LogStorePebble or LogStoreBoltDB. It is chosen when the data
	// directory is made.
	LogStore string
	// Lease is how long a worker that names no lease of its own may send no heartbeat before the cluster
	// gives its tasks to another: 1 s to 10 min.
	Lease time.Duration
	// HeartbeatTimeout, ElectionTimeout and LeaderLease are Raft's; LeaderLease <= HeartbeatTimeout <=
	// ElectionTimeout. A node that is its cluster's only member shortens the
	// defaults of all three.
	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration
	LeaderLease      time.Duration
	// CommitTimeout is how long an idle leader waits before it sends the commit index to followers.
	CommitTimeout time.Duration
	// MaxAppendEntries bounds the entries of one append message: 1 to 1,024.
	MaxAppendEntries int
	// SnapshotThreshold is the number of log entries after which a new snapshot marker is written.
	SnapshotThreshold uint64
	// SnapshotInterval is how often that is checked.
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries stay in the log behind a marker. A follower that lacks more needs a
	// whole snapshot.
	TrailingLogs uint64

	// CacheBytes is the block cache that all stores of the node share.
	CacheBytes int64
	// MemtableBytes is the memtable budget that all stores of the node share. While memtables are flushed, there may be
	// half as much again: the log takes half of it, the states the whole.
	MemtableBytes int64
	// DiskReserve is how many bytes of its disk a node keeps free for the writes that it must make on a full disk.
	// The reserve is a file in DataDir, and marks of free space below which the node refuses commands that fill
	// the disk. At least 1 MiB. 0 is 1 % of the disk, 64 MiB at least and 1 GiB at most. 16 MiB in `node dev`.
	DiskReserve int64
	// MemoryLimit bounds the process's memory, in bytes; 0 leaves it to the control groups. The server's main
	// function has the garbage collector keep to it; a program that embeds a node sets its own limit.
	MemoryLimit int64
	// MaxPendingCommands bounds, for each partition, the commands that wait for Raft. Beyond it a request
	// is refused with OVERLOADED.
	MaxPendingCommands int
	// MaxPendingBytes, MaxPendingNamespaceBytes and MaxPendingNodeBytes bound the bytes of commands that wait or are
	// in flight at this node: of one partition, of one namespace, of all. Beyond one of them a request is refused
	// with OVERLOADED and a hint when to try again. New work gets at most half of each.
	MaxPendingBytes          int64
	MaxPendingNamespaceBytes int64
	MaxPendingNodeBytes      int64
	// MaxWorkers bounds the worker streams of the node. A worker of the SDK has one stream on every node, so it counts
	// once on each. Beyond the bound a stream is refused with OVERLOADED.
	MaxWorkers int
	// MaxStreams bounds the streams of the node over which clients of promises get messages for their addresses. Beyond
	// the bound a stream is refused with 503.
	MaxStreams int
	// MaxRequestBytes bounds the gRPC requests that the node receives or handles at a time, all together:
	// rpc.MinRequestBytes at least. Beyond it a request waits for 2 s and is refused with OVERLOADED. A connection
	// may have half of it, the tokens of a namespace three quarters.
	MaxRequestBytes int64
	// MaxConnections bounds the connections to the gRPC port: beyond it the one that has been idle for longest is
	// closed. 0 means rpc.DefaultConnections, or less where the process may open few files.
	MaxConnections int

	// HTTPNodes says whether this node runs the HTTP nodes of graphs, for the partitions it leads. Where it
	// is off, the node refuses graphs with such nodes, and HTTP nodes of running graphs fail. All nodes of a
	// cluster should have the same of these three settings.
	HTTPNodes Switch
	// HTTPHosts are the hosts that HTTP nodes may call: "host", "host:port", "*.suffix". Empty: every host.
	HTTPHosts []string
	// HTTPNetworks are the networks (CIDR) that HTTP nodes may reach although their addresses are not public: private,
	// loopback, link-local and so on. Every other address of that kind is refused after the name was resolved.
	HTTPNetworks []string

	// ResonateNamespace is the namespace whose promises clients of the Resonate protocol have, on the HTTP port.
	ResonateNamespace string
	// ResonateDottedIDs lets the origin of their ids end at the first ':' or '.' and skips the checks of the tags of a
	// lineage, as Resonate's SDKs before 0.11.5 need it. All nodes of a cluster must have the same, from the first promise on.
	ResonateDottedIDs bool
	// ResonateOrigins are the origins of web pages that may call the Resonate protocol (CORS), "*" for any. Empty: none.
	ResonateOrigins []string
	// ResonateRetry is after what time the address of a task that no worker has acquired is told again, and the longest delay
	// of a task that is released again and again: 100 ms to 24 h. A partition has that of the node that leads it.
	ResonateRetry time.Duration
	// ResonatePushTokenFile is a file with the bearer token that messages for HTTP addresses carry, in one line. Empty: none.
	ResonatePushTokenFile string
	// ResonateDebug serves the Resonate protocol in debug mode, for checkers of the protocol: requests set the clock, and
	// debug.reset deletes everything. Its promises are in the memory of this node, apart from those of the partitions, and
	// lost when it stops. Only for a node that is alone.
	ResonateDebug bool

	// AuditShare is the most of one processor that audits in the background take: each replica's state is checked by
	// all rules, piece by piece. NoShare disables them. Their results are in the metrics and in `cluster status`.
	AuditShare Percent
	// AuditInterval is how long after the beginning of one round over all replicas the next begins, unless the
	// round takes longer: 1 s to 168 h.
	AuditInterval time.Duration

	// Retention is for how long what has ended is kept: RULE for all, NAMESPACE=RULE, NAMESPACE/FUNCTION=RULE, where RULE is an
	// age like 30d or 36h, at least 10m, or "forever", or "keep N" for how many executions of each function, and how many
	// promises of clients, are kept in each namespace, at most 1,000,000, or "keep all". What is over by either is purged. Each
	// partition keeps its part of N, rounded up. The leader of a partition purges by its own; all nodes of a cluster should have
	// the same. Empty: everything is kept.
	Retention []string
	// RetentionInterval is how long after the beginning of one round of purges the next begins: 1 s to 24 h. What ends later than all
	// that began after it waits for up to 30 rounds, and the promises of clients do so for up to 240 while none is to be purged.
	RetentionInterval time.Duration

	// Quota bounds what namespaces use of the whole cluster: NAMESPACE=open:N for open executions, bytes:SIZE for what is stored,
	// starts:N/s, of which a tenth of a second's may come at once, or ten if that is more; "*" names every namespace that is not
	// named. The leaders of partitions refuse what begins work with
	// QUOTA_EXCEEDED. All nodes of a cluster should have the same. Empty: no limits.
	Quota []string

	// BackupURL is where the cluster's backups are made on a schedule: a path, file:///path or s3://bucket/prefix, with the
	// credentials of the AWS_ variables. Every node must reach it, a folder must be the same one on all of them: the node that
	// leads partition 0 makes them. Empty: no schedule. All nodes of a cluster should have the same.
	BackupURL string
	// BackupEvery is the time between two backups, 1 min to 365 days. BackupKeep is how many are kept; older ones are deleted.
	BackupEvery time.Duration
	BackupKeep  int
	// BackupRate bounds the bytes that nodes read for a scheduled backup, per second. 0: no bound.
	BackupRate int64

	// AutoUpgrade raises the cluster's feature level without an operator's command once every member knows a
	// newer one. No earlier version can serve in the cluster from then on.
	AutoUpgrade bool
	// CheckInvariants checks every object that a command has touched against all invariants of the rules, and halts a
	// partition on a violation, before the command's entry is stored. On in `node dev`.
	CheckInvariants bool

	// LogLevel is "debug", "info", "warn" or "error".
	LogLevel string
	// LogFormat is LogFormatText or LogFormatJSON.
	LogFormat string
	// ShutdownGrace bounds an orderly stop: handing leaderships away, ending calls, flushing the stores.
	ShutdownGrace time.Duration

	// Logger replaces the logger that LogLevel and LogFormat describe, for programs that embed a node. It
	// has no flag.
	Logger *slog.Logger

	// reloadEvery is the interval at which certificates and tokens are read again; 0 for the default of each.
	reloadEvery time.Duration
}

// MaxPartitions bounds Config.Partitions: each one is a Raft group with stores, goroutines and timers of
// its own.
const MaxPartitions = 256

// DefaultConfig returns the defaults of all settings.
func DefaultConfig() Config {
	return Config{
		NodeID:             "n1",
		DataDir:            "./perdure-data",
		GRPCAddr:           "127.0.0.1:7400",
		HTTPAddr:           "127.0.0.1:7401",
		PeerAddr:           "127.0.0.1:7402",
		GossipAddr:         "127.0.0.1:7403",
		BootstrapExpect:    1,
		LogStore:           LogStorePebble,
		Lease:              10 * time.Second,
		HeartbeatTimeout:   2 * time.Second,
		ElectionTimeout:    2 * time.Second,
		LeaderLease:        2 * time.Second,
		CommitTimeout:      500 * time.Millisecond,
		MaxAppendEntries:   256,
		SnapshotThreshold:  8192,
		SnapshotInterval:   30 * time.Second,
		TrailingLogs:       8192,
		CacheBytes:         128 << 20,
		MemtableBytes:      64 << 20,
		MaxPendingCommands: 4096,
		MaxWorkers:         1024,
		MaxStreams:         1000,
		MaxRequestBytes:    rpc.DefaultRequestBytes,
		HTTPNodes:          Off,
		ResonateNamespace:  rpc.DefaultNamespace,
		ResonateRetry:      30 * time.Second,
		AuditShare:         3,
		AuditInterval:      15 * time.Minute,
		Retention:          []string{"30d"},
		RetentionInterval:  time.Minute,
		BackupEvery:        24 * time.Hour,
		BackupKeep:         7,
		LogLevel:           "info",
		LogFormat:          LogFormatText,
		ShutdownGrace:      10 * time.Second,
		MaxPendingBytes:    admission.DefaultLimits.PartitionBytes, MaxPendingNamespaceBytes: admission.DefaultLimits.NamespaceBytes,
		MaxPendingNodeBytes: admission.DefaultLimits.NodeBytes,
	}
}

// DefaultPartitions is the number of partitions of a new cluster whose creator chose none: 4 on up to two
// cores, 8 on up to eight, 16 above. Few on a small machine, where each group costs processor time; never
// under 3, so that each of three members can lead something.
func DefaultPartitions(cores int) int {
	switch {
	case cores <= 2:
		return 4
	case cores <= 8:
		return 8
	default:
		return 16
	}
}

// WithDefaults returns the configuration with every zero field replaced by its default. Partitions may
// stay 0: what it defaults to depends on whether there is data already.
func (c Config) WithDefaults() Config {
	defaults := DefaultConfig()
	for i := range settings {
		s := &settings[i]
		if isZero(s.at(&c)) {
			copyValue(s.at(&c), s.at(&defaults))
		}
	}
	return c
}

// NewLogger returns Logger, or else a logger on w as LogLevel and LogFormat say. A level or format that
// Validate refuses is read as "info" and "text".
func (c Config) NewLogger(w io.Writer) *slog.Logger {
	if c.Logger != nil {
		return c.Logger
	}
	options := &slog.HandlerOptions{Level: logLevels[c.LogLevel]}
	if c.LogFormat == LogFormatJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// logLevels are the levels by name; the zero value of slog.Level is info.
var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// LogValue shows the settings that have a value, by flag name, in the order of Settings, as the node's
// first log line has them.
func (c Config) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, len(settings))
	for i := range settings {
		if value := settings[i].at(&c); !isZero(value) {
			attrs = append(attrs, slog.String(settings[i].Flag, formatValue(value)))
		}
	}
	return slog.GroupValue(attrs...)
}

// A Problem is one problem of a configuration, with the source that it comes from.
type Problem struct {
	// Flag is the flag's name without dashes; empty when the problem is no setting's (an unknown key, a
	// file that cannot be read).
	Flag string
	// Value is the offending value as it was written, or as it prints.
	Value string
	// Source says where the value came from: "PERDURE_PARTITIONS", "perdure.yaml:7"; empty for a flag, a
	// default or a Config made by a program.
	Source string
	// Reason states the problem and what is valid.
	Reason string
}

// String is the problem on one line.
func (p Problem) String() string {
	if p.Flag == "" {
		if p.Source == "" {
			return p.Reason
		}
		return p.Source + ": " + p.Reason
	}
	text := fmt.Sprintf("--%s %q", p.Flag, p.Value)
	if p.Source != "" {
		text += " (" + p.Source + ")"
	}
	return text + ": " + p.Reason
}

// ConfigError carries every problem of a configuration at once, in the order of Settings, after those
// that belong to no setting.
type ConfigError struct {
	Problems []Problem
}

// Error is one line for one problem, and a list for several.
func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// problemsError is a *ConfigError, or nil when there is nothing to say.
func problemsError(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &ConfigError{Problems: problems}
}
