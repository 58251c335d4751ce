package embed

import (
	"strings"
	"time"

	"perdure/backup/schedule"
	"perdure/partition/addresses"
	"perdure/partition/admission"
	"perdure/rpc"
)

// A Setting is one row of the table from which flags, environment variables, configuration keys, their
// help and their checks are all derived.
type Setting struct {
	// Flag is the flag's name without dashes, and the key in the configuration file.
	Flag string
	// Unit says how a value is written: "host:port", "duration", "bytes", "number", "bool", …
	Unit string
	// Help is one line of at most 60 characters, complete in itself: the value and its bounds.
	Help string
	// Default is the default as text; empty when there is none.
	Default string
	// Bool says that the flag may be given without a value.
	Bool bool
	// List says that a value is a list with commas, and that a further flag continues it.
	List bool
	// Cluster marks a setting without a meaning for a node that is alone.
	Cluster bool

	at    func(*Config) any
	check func(value any) string
}

// Env is the environment variable of the setting: PERDURE_, then the flag's name in capitals with '_'
// for '-'.
func (s Setting) Env() string {
	return "PERDURE_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Key is the setting's key in a configuration file.
func (s Setting) Key() string { return s.Flag }

// Settings returns the table, in the order in which help shows it.
func Settings() []Setting {
	out := make([]Setting, len(settings))
	copy(out, settings)
	defaults := DefaultConfig()
	for i := range out {
		if value := out[i].at(&defaults); !isZero(value) {
			out[i].Default = formatValue(value)
		}
		switch out[i].at(&defaults).(type) {
		case *bool, *Switch:
			out[i].Bool = true
		case *[]string:
			out[i].List = true
		}
	}
	return out
}

// settings is the table. A new setting is a field of Config, its default, and a row here.
var settings = []Setting{
	{Flag: "node-id", Unit: "name", Help: "name of this node, unique in its cluster",
		at: func(c *Config) any { return &c.NodeID }, check: checkNodeID},
	{Flag: "data", Unit: "folder", Help: "folder of the node's data, created if missing",
		at: func(c *Config) any { return &c.DataDir }, check: checkNotEmpty},

	{Flag: "grpc-addr", Unit: "host:port", Help: "clients and workers (gRPC)",
		at: func(c *Config) any { return &c.GRPCAddr }, check: checkAddr},
	{Flag: "http-addr", Unit: "host:port", Help: "health, metrics and profiles (HTTP)",
		at: func(c *Config) any { return &c.HTTPAddr }, check: checkAddr},
	{Flag: "peer-addr", Unit: "host:port", Help: "Raft and messages between nodes (TCP)",
		at: func(c *Config) any { return &c.PeerAddr }, check: checkAddr},
	{Flag: "gossip-addr", Unit: "host:port", Help: "member discovery (TCP and UDP)",
		at: func(c *Config) any { return &c.GossipAddr }, check: checkAddr},
	{Flag: "advertise-host", Unit: "host", Help: "host at which others reach this node; default: listen host", Cluster: true,
		at: func(c *Config) any { return &c.AdvertiseHost }, check: checkAdvertiseHost},
	{Flag: "insecure", Unit: "bool", Help: "allow unencrypted addresses beyond loopback",
		at: func(c *Config) any { return &c.Insecure }},

	{Flag: "tls-cert", Unit: "file", Help: "certificate (PEM) of the gRPC and HTTP ports, reloaded",
		at: func(c *Config) any { return &c.TLSCert }},
	{Flag: "tls-key", Unit: "file", Help: "private key (PEM) of --tls-cert",
		at: func(c *Config) any { return &c.TLSKey }},
	{Flag: "tls-client-ca", Unit: "file", Help: "CA certificates (PEM) that client certificates must chain to",
		at: func(c *Config) any { return &c.TLSClientCA }},
	{Flag: "tokens-file", Unit: "file", Help: "YAML list of tokens; perdure token hash prints its rows",
		at: func(c *Config) any { return &c.TokensFile }},
	{Flag: "jwt-key-file", Unit: "file", Help: "public keys (PEM) of JWT issuers: RS256, ES256, EdDSA",
		at: func(c *Config) any { return &c.JWTKeyFile }},
	{Flag: "jwt-issuer", Unit: "text", Help: "issuer (iss) that a JWT must name",
		at: func(c *Config) any { return &c.JWTIssuer }},
	{Flag: "jwt-audience", Unit: "text", Help: "audience (aud) that a JWT must name",
		at: func(c *Config) any { return &c.JWTAudience }},
	{Flag: "peer-tls-cert", Unit: "file", Help: "certificate (PEM) of the peer port, server and client", Cluster: true,
		at: func(c *Config) any { return &c.PeerTLSCert }},
	{Flag: "peer-tls-key", Unit: "file", Help: "private key (PEM) of --peer-tls-cert", Cluster: true,
		at: func(c *Config) any { return &c.PeerTLSKey }},
	{Flag: "peer-tls-ca", Unit: "file", Help: "CA certificates (PEM) of the peers", Cluster: true,
		at: func(c *Config) any { return &c.PeerTLSCA }},
	{Flag: "gossip-key-file", Unit: "file", Help: "gossip keys, base64, one a line; the first encrypts", Cluster: true,
		at: func(c *Config) any { return &c.GossipKeyFile }},

	{Flag: "partitions", Unit: "number", Help: "partitions of a new cluster, 3 to 256; default by cores",
		at: func(c *Config) any { return &c.Partitions }, check: checkPartitions},
	{Flag: "join", Unit: "host:port,…", Help: "gossip addresses of members or fellow founders", Cluster: true,
		at: func(c *Config) any { return &c.Join }, check: checkJoin},
	{Flag: "bootstrap-expect", Unit: "number", Help: "founding members: 1, or 3, 5 or 7 with --join", Cluster: true,
		at: func(c *Config) any { return &c.BootstrapExpect }, check: checkBootstrapExpect},
	{Flag: "log-store", Unit: "pebble|boltdb", Help: "store of the Raft logs, fixed at creation",
		at: func(c *Config) any { return &c.LogStore }, check: oneOf(LogStorePebble, LogStoreBoltDB)},

	{Flag: "lease", Unit: "duration", Help: "default lease of a worker's tasks, 1s to 10m",
		at: func(c *Config) any { return &c.Lease }, check: durationBetween(minLease, maxLease)},
	{Flag: "heartbeat-timeout", Unit: "duration", Help: "time without contact until a follower suspects its leader",
		at: func(c *Config) any { return &c.HeartbeatTimeout }, check: durationBetween(minRaftTimeout, maxRaftTimeout)},
	{Flag: "election-timeout", Unit: "duration", Help: "wait for votes, at least the heartbeat timeout",
		at: func(c *Config) any { return &c.ElectionTimeout }, check: durationBetween(minRaftTimeout, maxRaftTimeout)},
	{Flag: "leader-lease", Unit: "duration", Help: "time a leader serves without a majority, at most heartbeat",
		at: func(c *Config) any { return &c.LeaderLease }, check: durationBetween(minRaftTimeout, maxRaftTimeout)},
	{Flag: "commit-timeout", Unit: "duration", Help: "interval of an idle leader's commit messages, 1ms to 10s",
		at: func(c *Config) any { return &c.CommitTimeout }, check: durationBetween(minCommitTimeout, maxCommitTimeout)},
	{Flag: "max-append-entries", Unit: "number", Help: "log entries per message to a follower, 1 to 1024",
		at: func(c *Config) any { return &c.MaxAppendEntries }, check: intBetween(1, maxAppendEntries)},
	{Flag: "snapshot-threshold", Unit: "entries", Help: "log entries that trigger a snapshot marker",
		at: func(c *Config) any { return &c.SnapshotThreshold }, check: positiveCount},
	{Flag: "snapshot-interval", Unit: "duration", Help: "interval of the snapshot check, 100ms to 24h",
		at: func(c *Config) any { return &c.SnapshotInterval }, check: durationBetween(minSnapshotInterval, maxSnapshotInterval)},
	{Flag: "trailing-logs", Unit: "entries", Help: "log entries kept behind a snapshot marker",
		at: func(c *Config) any { return &c.TrailingLogs }, check: positiveCount},

	{Flag: "cache-bytes", Unit: "bytes", Help: "block cache of all stores, at least 1MiB",
		at: func(c *Config) any { return &c.CacheBytes }, check: bytesAtLeast(minStoreBytes)},
	{Flag: "memtable-bytes", Unit: "bytes", Help: "memtables of all stores, at least 1MiB",
		at: func(c *Config) any { return &c.MemtableBytes }, check: bytesAtLeast(minStoreBytes)},
	{Flag: "disk-reserve", Unit: "bytes", Help: "disk space kept free; default 1 % of it, 64MiB to 1GiB",
		at: func(c *Config) any { return &c.DiskReserve }, check: zeroOrBytesAtLeast(minStoreBytes)},
	{Flag: "memory-limit", Unit: "bytes", Help: "process memory limit, at least 128MiB; default: cgroup's",
		at: func(c *Config) any { return &c.MemoryLimit }, check: zeroOrBytesAtLeast(minMemoryLimit)},
	{Flag: "max-pending-commands", Unit: "number", Help: "queued commands per partition before refusals",
		at: func(c *Config) any { return &c.MaxPendingCommands }, check: intBetween(1, maxQueue)},
	{Flag: "max-pending-bytes", Unit: "bytes", Help: "queued bytes per partition, at least 64MiB",
		at: func(c *Config) any { return &c.MaxPendingBytes }, check: bytesAtLeast(admission.MinLimitBytes)},
	{Flag: "max-pending-namespace-bytes", Unit: "bytes", Help: "queued bytes per namespace on this node, at least 64MiB",
		at: func(c *Config) any { return &c.MaxPendingNamespaceBytes }, check: bytesAtLeast(admission.MinLimitBytes)},
	{Flag: "max-pending-node-bytes", Unit: "bytes", Help: "queued bytes on this node, at least 64MiB",
		at: func(c *Config) any { return &c.MaxPendingNodeBytes }, check: bytesAtLeast(admission.MinLimitBytes)},
	{Flag: "max-workers", Unit: "number", Help: "worker streams here; each worker has one on every node",
		at: func(c *Config) any { return &c.MaxWorkers }, check: intBetween(1, maxQueue)},
	{Flag: "max-streams", Unit: "number", Help: "streams of clients' messages here, 1 to 100000",
		at: func(c *Config) any { return &c.MaxStreams }, check: intBetween(1, addresses.MaxStreams)},
	{Flag: "max-request-bytes", Unit: "bytes", Help: "gRPC request bytes in memory at once, at least 32MiB",
		at: func(c *Config) any { return &c.MaxRequestBytes }, check: bytesAtLeast(rpc.MinRequestBytes)},
	{Flag: "max-connections", Unit: "number", Help: "gRPC connections; default 16384, less if files are limited",
		at: func(c *Config) any { return &c.MaxConnections }, check: intBetween(0, maxQueue)},

	{Flag: "http-nodes", Unit: "bool", Help: "run HTTP nodes of graphs; otherwise refuse such graphs",
		at: func(c *Config) any { return &c.HTTPNodes }},
	{Flag: "http-hosts", Unit: "host,…", Help: "hosts for HTTP nodes: host, host:port, *.suffix; default any",
		at: func(c *Config) any { return &c.HTTPHosts }, check: checkHTTPHosts},
	{Flag: "http-networks", Unit: "cidr,…", Help: "networks beyond public ones that HTTP nodes may reach",
		at: func(c *Config) any { return &c.HTTPNetworks }, check: checkHTTPNetworks},

	{Flag: "resonate-namespace", Unit: "name", Help: "namespace of the Resonate protocol's promises",
		at: func(c *Config) any { return &c.ResonateNamespace }, check: checkNotEmpty},
	{Flag: "resonate-dotted-ids", Unit: "bool", Help: "admit Resonate ids joined by dots, of SDKs before 0.11.5",
		at: func(c *Config) any { return &c.ResonateDottedIDs }},
	{Flag: "resonate-origins", Unit: "origin,…", Help: "web pages that may call the Resonate protocol (CORS)",
		at: func(c *Config) any { return &c.ResonateOrigins }, check: checkOrigins},
	{Flag: "resonate-retry", Unit: "duration", Help: "interval at which Resonate tasks are announced, 100ms to 24h",
		at: func(c *Config) any { return &c.ResonateRetry }, check: durationBetween(100*time.Millisecond, 24*time.Hour)},
	{Flag: "resonate-push-token-file", Unit: "file", Help: "bearer token of messages to HTTP addresses, one line",
		at: func(c *Config) any { return &c.ResonatePushTokenFile }},
	{Flag: "resonate-debug", Unit: "bool", Help: "serve Resonate's debug mode, from memory; one node only",
		at: func(c *Config) any { return &c.ResonateDebug }},

	{Flag: "audit-share", Unit: "percent", Help: "share of a core for background audits; 0 disables them",
		at: func(c *Config) any { return &c.AuditShare }, check: percentUpTo(maxAuditShare)},
	{Flag: "audit-interval", Unit: "duration", Help: "interval of background audits, 1s to 168h",
		at: func(c *Config) any { return &c.AuditInterval }, check: durationBetween(minAuditInterval, maxAuditInterval)},
	{Flag: "retention", Unit: "[scope=]rule,…", Help: "keep what has ended: 30d, NS=7d, NS/FUNCTION=keep 1000",
		at: func(c *Config) any { return &c.Retention }, check: checkRetention},
	{Flag: "retention-interval", Unit: "duration", Help: "interval of purges, 1s to 24h",
		at: func(c *Config) any { return &c.RetentionInterval }, check: durationBetween(time.Second, 24*time.Hour)},
	{Flag: "quota", Unit: "ns=limit,…", Help: "limit namespaces: NS=open:1000,bytes:10GiB,starts:50/s",
		at: func(c *Config) any { return &c.Quota }, check: checkQuota},
	{Flag: "backup-url", Unit: "URL", Help: "store of scheduled backups: path or s3://bucket/prefix",
		at: func(c *Config) any { return &c.BackupURL }, check: checkBackupURL},
	{Flag: "backup-every", Unit: "duration", Help: "time between two scheduled backups, 1m to 8760h",
		at: func(c *Config) any { return &c.BackupEvery }, check: durationBetween(schedule.LeastEvery, maxBackupEvery)},
	{Flag: "backup-keep", Unit: "number", Help: "scheduled backups that are kept, 1 to 100000",
		at: func(c *Config) any { return &c.BackupKeep }, check: intBetween(1, maxBackupKeep)},
	{Flag: "backup-rate", Unit: "bytes", Help: "bytes read per second for one; default: no bound",
		at: func(c *Config) any { return &c.BackupRate }, check: zeroOrBytesAtLeast(minStoreBytes)},
	{Flag: "auto-upgrade", Unit: "bool", Help: "raise the feature level once every node knows the next",
		at: func(c *Config) any { return &c.AutoUpgrade }},
	{Flag: "check-invariants", Unit: "bool", Help: "check all invariants before storing; halt on violation",
		at: func(c *Config) any { return &c.CheckInvariants }},

	{Flag: "log-level", Unit: "level", Help: "debug, info, warn or error",
		at: func(c *Config) any { return &c.LogLevel }, check: oneOf("debug", "info", "warn", "error")},
	{Flag: "log-format", Unit: "text|json", Help: "format of the log on stderr",
		at: func(c *Config) any { return &c.LogFormat }, check: oneOf(LogFormatText, LogFormatJSON)},
	{Flag: "shutdown-grace", Unit: "duration", Help: "time limit of an orderly stop, 100ms to 10m",
		at: func(c *Config) any { return &c.ShutdownGrace }, check: durationBetween(minGrace, maxGrace)},
}

// settingByFlag finds a row by flag name or key.
func settingByFlag(name string) *Setting {
	for i := range settings {
		if settings[i].Flag == name {
			return &settings[i]
		}
	}
	return nil
}
