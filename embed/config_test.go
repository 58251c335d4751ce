package embed

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"pgregory.net/rapid"
)

var updateConfigGolden = flag.Bool("update-config", false, "rewrite the golden files of the configuration tests")

func configGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateConfigGolden {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs.\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}

func configEnv(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

func configFile(content string) func(string) ([]byte, error) {
	return func(string) ([]byte, error) { return []byte(content), nil }
}

func TestDefaultsAreValid(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	if err := (Config{}).WithDefaults().Validate(); err != nil {
		t.Fatal(err)
	}
	if got := (Config{}).WithDefaults(); !reflect.DeepEqual(got, DefaultConfig()) {
		t.Errorf("WithDefaults of nothing is %+v, want DefaultConfig", got)
	}
	kept := Config{NodeID: "x", Lease: time.Minute}.WithDefaults()
	if kept.NodeID != "x" || kept.Lease != time.Minute || kept.GRPCAddr != DefaultConfig().GRPCAddr {
		t.Errorf("WithDefaults changed what was chosen, or left out what was not: %+v", kept)
	}
	if err := (Config{}).Validate(); err == nil {
		t.Error("a Config of zeros is accepted without WithDefaults")
	}
}

func TestDefaultPartitions(t *testing.T) {
	for cores, want := range map[int]int{1: 4, 2: 4, 3: 8, 8: 8, 9: 16, 64: 16} {
		if got := DefaultPartitions(cores); got != want {
			t.Errorf("DefaultPartitions(%d) = %d, want %d", cores, got, want)
		}
	}
}

// Every field has one row, every row one field, and no name means two things.
func TestEveryFieldHasASetting(t *testing.T) {
	var cfg Config
	rows := map[uintptr]string{}
	names := map[string]bool{}
	for _, s := range Settings() {
		at := reflect.ValueOf(s.at(&cfg)).Pointer()
		if other, twice := rows[at]; twice {
			t.Errorf("%s and %s set the same field", s.Flag, other)
		}
		rows[at] = s.Flag
		for _, name := range []string{s.Flag, s.Env()} {
			if names[name] {
				t.Errorf("the name %s is used twice", name)
			}
			names[name] = true
		}
		if s.Help == "" || s.Unit == "" {
			t.Errorf("%s lacks a unit or help", s.Flag)
		}
	}
	if names[ConfigFileEnv] {
		t.Errorf("%s is taken", ConfigFileEnv)
	}
	v := reflect.ValueOf(&cfg).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() || name == "File" || name == "Logger" {
			continue
		}
		if rows[v.Field(i).Addr().Pointer()] == "" {
			t.Errorf("field %s has no setting", name)
		}
	}
}

func TestSettingsTable(t *testing.T) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range Settings() {
		fmt.Fprintf(w, "--%s\t%s\t%s\t%s\t%s\n", s.Flag, s.Env(), s.Unit, s.Default, s.Help)
	}
	w.Flush()
	configGolden(t, "settings.txt", b.String())
}

func TestPrecedence(t *testing.T) {
	load := func(from Sources) Config {
		t.Helper()
		cfg, err := Load(from)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	from := Sources{
		Flags:     map[string]string{"node-id": "flag"},
		LookupEnv: configEnv(map[string]string{"PERDURE_NODE_ID": "env", "PERDURE_DATA": "env-data", "PERDURE_LEASE": ""}),
		File:      "perdure.yaml",
		ReadFile:  configFile("node-id: file\ndata: file-data\nlease: 7s\ncache-bytes: 8MiB\n"),
		Defaults:  map[string]string{"lease": "6s", "cache-bytes": "1MiB", "log-level": "warn"},
	}
	cfg := load(from)
	if cfg.NodeID != "flag" {
		t.Errorf("node id from %q, want the flag", cfg.NodeID)
	}
	if cfg.DataDir != "env-data" {
		t.Errorf("data from %q, want the environment", cfg.DataDir)
	}
	if cfg.Lease != 7*time.Second || cfg.CacheBytes != 8<<20 {
		t.Errorf("lease %v and cache %d, want the file's (an empty variable counts as not set)", cfg.Lease, cfg.CacheBytes)
	}
	if cfg.LogLevel != "warn" || cfg.HTTPAddr != DefaultConfig().HTTPAddr {
		t.Errorf("log level %q, HTTP address %q, want the defaults given and built in", cfg.LogLevel, cfg.HTTPAddr)
	}
	if cfg.File != "perdure.yaml" {
		t.Errorf("File is %q", cfg.File)
	}

	// A bad value that a better source replaces is no problem.
	if got := load(Sources{Flags: map[string]string{"partitions": "5"},
		LookupEnv: configEnv(map[string]string{"PERDURE_PARTITIONS": "many"})}); got.Partitions != 5 {
		t.Errorf("partitions %d, want 5", got.Partitions)
	}
	// The file may be named by the environment.
	if got := load(Sources{LookupEnv: configEnv(map[string]string{ConfigFileEnv: "f"}), ReadFile: configFile("node-id: x\n")}); got.NodeID != "x" {
		t.Errorf("node id %q, want that of the file", got.NodeID)
	}
	// Nothing at all is the default.
	if got := load(Sources{}); !reflect.DeepEqual(got, DefaultConfig()) {
		t.Errorf("Load of nothing is %+v", got)
	}
	for _, empty := range []string{"", "\n# a comment\n", "---\n", "~\n"} {
		if got := load(Sources{File: "f", ReadFile: configFile(empty)}); got.NodeID != "n1" {
			t.Errorf("an empty file %q sets node id %q", empty, got.NodeID)
		}
	}
}

// Every setting can be given in each of the three ways, and reads back as it was written.
func TestEverySettingFromEverySource(t *testing.T) {
	sample := map[string]string{
		"node-id": "n-7", "data": "/srv/perdure", "grpc-addr": "127.0.0.1:1", "http-addr": "[::1]:2",
		"peer-addr": "localhost:3", "gossip-addr": "127.0.0.1:0", "insecure": "true", "check-invariants": "true", "partitions": "3",
		"log-store": "boltdb", "lease": "5s", "heartbeat-timeout": "1s",
		"election-timeout": "1m", "leader-lease": "100ms", "commit-timeout": "10ms", "max-append-entries": "64",
		"snapshot-threshold": "100", "snapshot-interval": "1m30s", "trailing-logs": "10", "cache-bytes": "1GiB",
		"memtable-bytes": "1500000", "max-pending-commands": "7", "max-workers": "8", "max-streams": "9", "max-request-bytes": "48MiB", "max-connections": "500", "disk-reserve": "32MiB", "http-nodes": "true", "http-hosts": "api.example,*.internal.example:8443", "http-networks": "10.0.0.0/8,::1/128", "resonate-namespace": "res", "resonate-dotted-ids": "true", "resonate-origins": "https://a.example", "resonate-retry": "500ms", "resonate-push-token-file": "push.token", "resonate-debug": "true", "audit-share": "0.5%", "audit-interval": "1h", "retention": "7d,keep 10,default/f=forever", "retention-interval": "30s", "quota": "billing=open:10,bytes:1GiB,*=starts:50/s", "log-level": "debug",
		"memory-limit": "1GiB", "max-pending-bytes": "80MiB", "max-pending-namespace-bytes": "70MiB", "max-pending-node-bytes": "1GiB",
		"log-format": "json", "shutdown-grace": "3m",
		"join": "127.0.0.1:7403,[::1]:7503", "bootstrap-expect": "3", "advertise-host": "node-1.example",
		"tls-cert": "c.crt", "tls-key": "c.key", "tls-client-ca": "c.ca", "peer-tls-cert": "p.crt", "peer-tls-key": "p.key",
		"peer-tls-ca": "p.ca", "gossip-key-file": "gossip.keys", "tokens-file": "tokens.yaml", "jwt-key-file": "jwt.pem",
		"jwt-issuer": "https://id.example", "jwt-audience": "perdure",
		"auto-upgrade": "true", "backup-url": "s3://bucket/prefix", "backup-every": "1h", "backup-keep": "3", "backup-rate": "50MiB",
	}
	// Settings that need another setting.
	together := map[string]string{
		"leader-lease": "5ms", // keeps the order of the timeouts true
		"join":         "127.0.0.1:1", "bootstrap-expect": "3",
		"tls-cert": "c", "tls-key": "c", "peer-tls-cert": "p", "peer-tls-key": "p", "peer-tls-ca": "p", "jwt-key-file": "j",
	}
	for _, s := range Settings() {
		text, ok := sample[s.Flag]
		if !ok {
			t.Errorf("no sample for %s", s.Flag)
			continue
		}
		for source, from := range map[string]Sources{
			"flag":        {Flags: map[string]string{s.Flag: text}},
			"environment": {LookupEnv: configEnv(map[string]string{s.Env(): text})},
			"file":        {File: "f", ReadFile: configFile(s.Key() + ": '" + text + "'\n")},
		} {
			from.Defaults = maps.Clone(together)
			delete(from.Defaults, s.Flag)
			if s.Flag == "resonate-debug" { // for a node that is alone
				delete(from.Defaults, "join")
				delete(from.Defaults, "bootstrap-expect")
			}
			if s.Flag == "leader-lease" {
				from.Defaults["heartbeat-timeout"], from.Defaults["election-timeout"] = "2s", "2s"
			}
			cfg, err := Load(from)
			if err != nil {
				t.Errorf("%s by %s: %v", s.Flag, source, err)
				continue
			}
			if got := formatValue(s.at(&cfg)); got != text {
				t.Errorf("%s by %s reads back as %q, want %q", s.Flag, source, got, text)
			}
		}
	}
}

// An operator makes every mistake at once, in three sources, and gets all problems in one answer.
func TestAllProblemsInOneAnswer(t *testing.T) {
	_, err := Load(Sources{
		Flags: map[string]string{
			"grpc-addr": "nowhere", "http-addr": "0.0.0.0:7410", "peer-addr": "127.0.0.1:7403",
			"join": "10.0.0.1:7403,10.0.0.2", "log-store": "sqlite", "leader-lease": "3s",
			"election-timeout": "1s", "lease": "1", "node-id": "n 1",
		},
		LookupEnv: configEnv(map[string]string{
			"PERDURE_PARTITIONS": "2", "PERDURE_BOOTSTRAP_EXPECT": "4", "PERDURE_CACHE_BYTES": "lots",
		}),
		File: "perdure.yaml",
		ReadFile: configFile(`# a node's settings
log-level: loud
max_workers: 10
partitons: 4
trailing-logs: -1
log-level: info
max-append-entries: 5000
snapshot-interval: {every: 30s}
shutdown-grace: 0s
colour: blue
`),
	})
	var all *ConfigError
	if !errors.As(err, &all) {
		t.Fatalf("got %v, want a *ConfigError", err)
	}
	configGolden(t, "problems.txt", err.Error()+"\n")
}

func TestOneProblemIsOneLine(t *testing.T) {
	cases := []struct {
		name string
		from Sources
		want string
	}{
		{"flag", Sources{Flags: map[string]string{"partitions": "2"}},
			`configuration: --partitions "2": at least 3, so that each of three members can lead one`},
		{"zero is not the default when it is written down", Sources{Flags: map[string]string{"partitions": "0"}},
			`configuration: --partitions "0": at least 3; leave it out for the default`},
		{"join", Sources{Flags: map[string]string{"join": "127.0.0.1:7403,a", "bootstrap-expect": "3"}},
			`configuration: --join "127.0.0.1:7403,a": "a" is not host:port; there is no port`},
		{"no member to join", Sources{LookupEnv: configEnv(map[string]string{"PERDURE_BOOTSTRAP_EXPECT": "3"})},
			`configuration: --join "": at least one gossip address of the 3 members that create the cluster is needed`},
		{"what cannot be read draws no other complaint", Sources{
			Flags:     map[string]string{"http-addr": "0.0.0.0:7401", "leader-lease": "3s"},
			LookupEnv: configEnv(map[string]string{"PERDURE_INSECURE": "perhaps"}),
			Defaults:  map[string]string{"heartbeat-timeout": "3s", "election-timeout": "3s"}},
			`configuration: --insecure "perhaps" (PERDURE_INSECURE): not a yes or no; write true or false`},
		{"file that is not there", Sources{File: "none.yaml", ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }},
			`configuration: cannot read the configuration file: file does not exist`},
		{"not a mapping", Sources{File: "f", ReadFile: configFile("- a\n- b\n")}, `configuration: f:1: not a mapping of keys to values`},
		{"two documents", Sources{File: "f", ReadFile: configFile("data: d\n---\ndata: e\n")}, `configuration: f:2: a second document; the file is one mapping of keys to values`},
		{"no value", Sources{File: "f", ReadFile: configFile("\nnode-id:\n")}, `configuration: f:2: the key "node-id" needs one value`},
		{"not YAML", Sources{File: "f", ReadFile: configFile("data: [\n")}, `configuration: f: yaml: line 1: did not find expected node content`},
	}
	for _, c := range cases {
		_, err := Load(c.from)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestValidateRelations(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Config)
		flags  []string // those complained of, in order
	}{
		{"lease above heartbeat", func(c *Config) { c.LeaderLease = 3 * time.Second }, []string{"leader-lease"}},
		{"election under heartbeat", func(c *Config) { c.ElectionTimeout = time.Second }, []string{"election-timeout"}},
		{"all equal", func(c *Config) { c.LeaderLease, c.HeartbeatTimeout, c.ElectionTimeout = 1e9, 1e9, 1e9 }, nil},
		{"same port", func(c *Config) { c.HTTPAddr = c.GRPCAddr }, []string{"http-addr"}},
		{"same port by another name", func(c *Config) { c.HTTPAddr = "localhost:7400" }, []string{"http-addr"}},
		{"same port on another interface", func(c *Config) { c.HTTPAddr = "127.0.0.2:7400" }, nil},
		{"same port on all interfaces", func(c *Config) { c.Insecure, c.PeerAddr = true, ":7400" }, []string{"peer-addr"}},
		{"any port", func(c *Config) { c.GRPCAddr, c.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0" }, nil},
		{"reachable", func(c *Config) { c.GRPCAddr = "192.0.2.1:7400" }, []string{"grpc-addr"}},
		{"all interfaces", func(c *Config) { c.HTTPAddr = ":7401" }, []string{"http-addr"}},
		{"a name", func(c *Config) { c.GossipAddr = "db1:7403" }, []string{"gossip-addr"}},
		{"reachable and accepted", func(c *Config) { c.Insecure, c.GRPCAddr = true, "0.0.0.0:7400" }, nil},
		{"IPv6 loopback", func(c *Config) { c.GRPCAddr = "[::1]:7400" }, nil},
		{"IPv6 without brackets", func(c *Config) { c.GRPCAddr = "::1:7400" }, []string{"grpc-addr"}},
		{"port too large", func(c *Config) { c.GRPCAddr = "127.0.0.1:70000" }, []string{"grpc-addr"}},
		{"two wrong numbers", func(c *Config) { c.Partitions, c.BootstrapExpect = 257, 2 }, []string{"partitions", "join", "bootstrap-expect"}},
		{"no node id", func(c *Config) { c.NodeID = strings.Repeat("x", 65) }, []string{"node-id"}},
		{"nothing for the stores", func(c *Config) { c.CacheBytes, c.MemtableBytes = 1, -1 }, []string{"cache-bytes", "memtable-bytes"}},
		{"lease of a worker too long", func(c *Config) { c.Lease = time.Hour }, []string{"lease"}},
	}
	for _, c := range cases {
		cfg := DefaultConfig()
		c.change(&cfg)
		err := cfg.Validate()
		var got []string
		var all *ConfigError
		if errors.As(err, &all) {
			for _, p := range all.Problems {
				got = append(got, p.Flag)
				if p.Reason == "" || p.Value == "" && p.Flag != "join" && p.Flag != "advertise-host" {
					t.Errorf("%s: problem without reason or value: %+v", c.name, p)
				}
			}
		} else if err != nil {
			t.Errorf("%s: %v is no *ConfigError", c.name, err)
		}
		if !reflect.DeepEqual(got, c.flags) {
			t.Errorf("%s: complaints about %v, want %v (%v)", c.name, got, c.flags, err)
		}
	}
}

func TestDurationsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64().Draw(t, "duration"))
		if back, err := time.ParseDuration(formatDuration(d)); err != nil || back != d {
			t.Fatalf("%d is written %q and read back as %d, %v", d, formatDuration(d), back, err)
		}
	})
	for d, want := range map[time.Duration]string{10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m", 70 * time.Second: "1m10s", 0: "0s"} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	cfg := DefaultConfig()
	cfg.LogFormat, cfg.LogLevel = LogFormatJSON, "warn"
	logger := cfg.NewLogger(&b)
	logger.Info("not shown")
	logger.Warn("starting", "config", cfg)
	line := b.String()
	if strings.Contains(line, "not shown") || !strings.Contains(line, `"config":{"node-id":"n1","data":"./perdure-data","grpc-addr":"127.0.0.1:7400"`) {
		t.Errorf("logged %s", line)
	}
	if own := cfg.NewLogger(nil); own == nil {
		t.Error("no logger")
	}
	cfg.Logger = logger
	if cfg.NewLogger(nil) != logger {
		t.Error("the program's own logger is not used")
	}
}
