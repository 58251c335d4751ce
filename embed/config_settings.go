package embed

import (
	"strings"

	"perdure/partition"
	"perdure/rpc"
)

// A Setting is one row of the table from which flags, environment variables, configuration keys, their
// help and their checks are all derived.
type Setting struct {
	// Flag is the flag's name without dashes, and the key in the configuration file.
	Flag string
	// Unit says how a value is written: "host:port", "duration", "bytes", "number", "bool", …
	Unit string
	// Help is one line; it names bounds and what the value does.
	Help string
	// Default is the default as text; empty when there is none.
	Default string
	// Bool says that the flag may stand without a value.
	Bool bool
	// Cluster marks what has no meaning for a node that is alone.
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
		}
	}
	return out
}

// settings is the table. A new setting is a field of Config, its default, and a row here.
var settings = []Setting{
	{Flag: "node-id", Unit: "name", Help: "name of this node within its cluster",
		at: func(c *Config) any { return &c.NodeID }, check: checkNodeID},
	{Flag: "data", Unit: "folder", Help: "folder for everything the node must not lose; made when missing",
		at: func(c *Config) any { return &c.DataDir }, check: checkNotEmpty},

	{Flag: "grpc-addr", Unit: "host:port", Help: "clients and workers (gRPC)",
		at: func(c *Config) any { return &c.GRPCAddr }, check: checkAddr},
	{Flag: "http-addr", Unit: "host:port", Help: "health, metrics and profiles (HTTP)",
		at: func(c *Config) any { return &c.HTTPAddr }, check: checkAddr},
	{Flag: "peer-addr", Unit: "host:port", Help: "Raft and messages between nodes (TCP)",
		at: func(c *Config) any { return &c.PeerAddr }, check: checkAddr},
	{Flag: "gossip-addr", Unit: "host:port", Help: "who is there (TCP and UDP)",
		at: func(c *Config) any { return &c.GossipAddr }, check: checkAddr},
	{Flag: "advertise-host", Unit: "host", Help: "host by which other nodes and clients reach this one; by default that of the address it listens on", Cluster: true,
		at: func(c *Config) any { return &c.AdvertiseHost }, check: checkAdvertiseHost},
	{Flag: "insecure", Unit: "bool", Help: "accept addresses that other machines can reach, although what goes over them is not secured",
		at: func(c *Config) any { return &c.Insecure }},

	{Flag: "tls-cert", Unit: "file", Help: "certificate (PEM) of the ports for clients, gRPC and HTTP; one that replaces it is used without a restart",
		at: func(c *Config) any { return &c.TLSCert }},
	{Flag: "tls-key", Unit: "file", Help: "its private key (PEM)",
		at: func(c *Config) any { return &c.TLSKey }},
	{Flag: "tls-client-ca", Unit: "file", Help: "authorities (PEM) of which clients must show a certificate",
		at: func(c *Config) any { return &c.TLSClientCA }},
	{Flag: "tokens-file", Unit: "file", Help: "whose tokens are good: YAML list of name, hash, namespace and role (perdure token hash)",
		at: func(c *Config) any { return &c.TokensFile }},
	{Flag: "jwt-key-file", Unit: "file", Help: "public keys (PEM) of whoever signs tokens: RS256, ES256, EdDSA",
		at: func(c *Config) any { return &c.JWTKeyFile }},
	{Flag: "jwt-issuer", Unit: "text", Help: "issuer that signed tokens must name",
		at: func(c *Config) any { return &c.JWTIssuer }},
	{Flag: "jwt-audience", Unit: "text", Help: "audience that signed tokens must be for",
		at: func(c *Config) any { return &c.JWTAudience }},
	{Flag: "peer-tls-cert", Unit: "file", Help: "certificate (PEM) of this node for its peers, as server and as client", Cluster: true,
		at: func(c *Config) any { return &c.PeerTLSCert }},
	{Flag: "peer-tls-key", Unit: "file", Help: "its private key (PEM)", Cluster: true,
		at: func(c *Config) any { return &c.PeerTLSKey }},
	{Flag: "peer-tls-ca", Unit: "file", Help: "authorities (PEM) of the peers' certificates", Cluster: true,
		at: func(c *Config) any { return &c.PeerTLSCA }},
	{Flag: "gossip-key-file", Unit: "file", Help: "keys of the gossip, base64, one for each line; the first encrypts, all decrypt; read at start", Cluster: true,
		at: func(c *Config) any { return &c.GossipKeyFile }},

	{Flag: "partitions", Unit: "number", Help: "partitions of a new cluster, 3 to 256, fixed when its data is made; by default 4 on up to two cores, 8 on up to eight, 16 above",
		at: func(c *Config) any { return &c.Partitions }, check: checkPartitions},
	{Flag: "join", Unit: "host:port,…", Help: "gossip addresses of members, or of those that create the cluster with this one; needs --bootstrap-expect", Cluster: true,
		at: func(c *Config) any { return &c.Join }, check: checkJoin},
	{Flag: "bootstrap-expect", Unit: "number", Help: "members that create the cluster together: 1, or 3 to 7 and odd, which needs --join", Cluster: true,
		at: func(c *Config) any { return &c.BootstrapExpect }, check: checkBootstrapExpect},
	{Flag: "log-store", Unit: "pebble|boltdb", Help: "what keeps the Raft logs; fixed when the data is made",
		at: func(c *Config) any { return &c.LogStore }, check: oneOf(LogStorePebble, LogStoreBoltDB)},

	{Flag: "lease", Unit: "duration", Help: "how long a silent worker keeps its tasks when it names no lease of its own, 1s to 10m",
		at: func(c *Config) any { return &c.Lease }, check: durationBetween(minLease, maxLease)},
	{Flag: "heartbeat-timeout", Unit: "duration", Help: "silence of a leader after which a member suspects it; shorter by default for a single member",
		at: func(c *Config) any { return &c.HeartbeatTimeout }, check: durationBetween(minRaftTimeout, maxRaftTimeout)},
	{Flag: "election-timeout", Unit: "duration", Help: "how long a candidate waits for votes, at least the heartbeat timeout",
		at: func(c *Config) any { return &c.ElectionTimeout }, check: durationBetween(minRaftTimeout, maxRaftTimeout)},
	{Flag: "leader-lease", Unit: "duration", Help: "how long a leader out of touch with a majority goes on, at most the heartbeat timeout",
		at: func(c *Config) any { return &c.LeaderLease }, check: durationBetween(minRaftTimeout, maxRaftTimeout)},
	{Flag: "commit-timeout", Unit: "duration", Help: "how soon an idle leader tells followers what is committed, 1ms to 10s",
		at: func(c *Config) any { return &c.CommitTimeout }, check: durationBetween(minCommitTimeout, maxCommitTimeout)},
	{Flag: "max-append-entries", Unit: "number", Help: "log entries in one message to a follower, 1 to 1024",
		at: func(c *Config) any { return &c.MaxAppendEntries }, check: intBetween(1, maxAppendEntries)},
	{Flag: "snapshot-threshold", Unit: "entries", Help: "log entries that make a new snapshot marker worthwhile",
		at: func(c *Config) any { return &c.SnapshotThreshold }, check: positiveCount},
	{Flag: "snapshot-interval", Unit: "duration", Help: "how often that is looked at, 100ms to 24h",
		at: func(c *Config) any { return &c.SnapshotInterval }, check: durationBetween(minSnapshotInterval, maxSnapshotInterval)},
	{Flag: "trailing-logs", Unit: "entries", Help: "log entries kept behind a snapshot marker for followers that lag",
		at: func(c *Config) any { return &c.TrailingLogs }, check: positiveCount},

	{Flag: "cache-bytes", Unit: "bytes", Help: "block cache of all stores together, 1MiB at least",
		at: func(c *Config) any { return &c.CacheBytes }, check: bytesAtLeast(minStoreBytes)},
	{Flag: "memtable-bytes", Unit: "bytes", Help: "memtables of all stores together, 1MiB at least",
		at: func(c *Config) any { return &c.MemtableBytes }, check: bytesAtLeast(minStoreBytes)},
	{Flag: "disk-reserve", Unit: "bytes", Help: "disk space kept free for what must be written, 1MiB at least; by default 1 % of the disk, 64MiB to 1GiB",
		at: func(c *Config) any { return &c.DiskReserve }, check: zeroOrBytesAtLeast(minStoreBytes)},
	{Flag: "memory-limit", Unit: "bytes", Help: "memory of the process, which garbage collection keeps to, 128MiB at least; by default what its control groups allow",
		at: func(c *Config) any { return &c.MemoryLimit }, check: zeroOrBytesAtLeast(minMemoryLimit)},
	{Flag: "max-pending-commands", Unit: "number", Help: "commands of one partition that may wait for Raft before requests are refused",
		at: func(c *Config) any { return &c.MaxPendingCommands }, check: intBetween(1, maxQueue)},
	{Flag: "max-pending-bytes", Unit: "bytes", Help: "bytes of one partition's waiting commands before requests are refused, 64MiB at least; new work gets half",
		at: func(c *Config) any { return &c.MaxPendingBytes }, check: bytesAtLeast(partition.MinLimitBytes)},
	{Flag: "max-pending-namespace-bytes", Unit: "bytes", Help: "the same for one namespace over all partitions of this node",
		at: func(c *Config) any { return &c.MaxPendingNamespaceBytes }, check: bytesAtLeast(partition.MinLimitBytes)},
	{Flag: "max-pending-node-bytes", Unit: "bytes", Help: "the same for everything at this node",
		at: func(c *Config) any { return &c.MaxPendingNodeBytes }, check: bytesAtLeast(partition.MinLimitBytes)},
	{Flag: "max-workers", Unit: "number", Help: "worker streams of this node before further ones are refused",
		at: func(c *Config) any { return &c.MaxWorkers }, check: intBetween(1, maxQueue)},
	{Flag: "max-request-bytes", Unit: "bytes", Help: "gRPC requests received or handled at a time, 32MiB at least",
		at: func(c *Config) any { return &c.MaxRequestBytes }, check: bytesAtLeast(rpc.MinRequestBytes)},
	{Flag: "max-connections", Unit: "number", Help: "connections to the gRPC port; idle ones make room; by default 16384, or what the process may open",
		at: func(c *Config) any { return &c.MaxConnections }, check: intBetween(0, maxQueue)},

	{Flag: "http-nodes", Unit: "bool", Help: "carry out HTTP nodes of graphs; when false, graphs that have some are refused",
		at: func(c *Config) any { return &c.HTTPNodes }},
	{Flag: "http-hosts", Unit: "host,…", Help: "hosts that HTTP nodes may call: host, host:port or *.suffix; by default every one",
		at: func(c *Config) any { return &c.HTTPHosts }, check: checkHTTPHosts},
	{Flag: "http-networks", Unit: "cidr,…", Help: "networks that HTTP nodes may reach although they are private, loopback or otherwise not public",
		at: func(c *Config) any { return &c.HTTPNetworks }, check: checkHTTPNetworks},

	{Flag: "audit-share", Unit: "percent", Help: "most of one processor that checking the stored states in the background takes; 0 turns it off",
		at: func(c *Config) any { return &c.AuditShare }, check: percentUpTo(maxAuditShare)},
	{Flag: "audit-interval", Unit: "duration", Help: "from the beginning of one such check to the next, 1s to 168h; it is later if the share does not suffice",
		at: func(c *Config) any { return &c.AuditInterval }, check: durationBetween(minAuditInterval, maxAuditInterval)},
	{Flag: "check-invariants", Unit: "bool", Help: "check every object that a command touches by all invariants of the rules, and halt a partition that breaks one before it is stored",
		at: func(c *Config) any { return &c.CheckInvariants }},

	{Flag: "log-level", Unit: "level", Help: "debug, info, warn or error",
		at: func(c *Config) any { return &c.LogLevel }, check: oneOf("debug", "info", "warn", "error")},
	{Flag: "log-format", Unit: "text|json", Help: "how log lines are written, on stderr",
		at: func(c *Config) any { return &c.LogFormat }, check: oneOf(LogFormatText, LogFormatJSON)},
	{Flag: "shutdown-grace", Unit: "duration", Help: "how long an orderly stop may take, 100ms to 10m",
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
