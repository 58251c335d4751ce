package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"perdure/embed"
)

// release is set when a release is built (-ldflags "-X main.release=v1.2.3").
var release string

// version is the release, or else what the Go tool knows about the sources.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// stopped carries the exit code of a command that has printed its error already.
type stopped int

func (s stopped) Error() string { return fmt.Sprintf("exit %d", int(s)) }

// run parses the command line, runs the command and returns the exit code. Errors other than stopped come from
// parsing: bad usage.
func (p *process) run(args []string) int {
	root := p.rootCommand()
	root.SetArgs(append([]string{}, args...)) // never nil: that would mean os.Args
	cmd, err := root.ExecuteC()
	var code stopped
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(p.stderr, "node: %v\n", err)
	var config *embed.ConfigError
	if !errors.As(err, &config) {
		fmt.Fprintf(p.stderr, "see %s --help\n", cmd.CommandPath())
	}
	return exitUsage
}

func (p *process) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "node",
		Short: "Run a Perdure server",
		Long: `Run a Perdure server: a replicated store for durable executions.

Every flag is also an environment variable (PERDURE_ and the flag's name in
capitals, with _ for -) and a key of the configuration file (the flag's name).
Flags override the environment, the environment overrides the file.
A flag whose value is a list (…) may be repeated: the lists are joined. Of any other
flag that is repeated the last one holds.`,
		Example: `  node dev
  node start --node-id n1 --data /var/lib/perdure`,
		Args:              cobra.NoArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("a command is missing: dev, start or version")
		},
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.AddCommand(p.devCommand(), p.startCommand(), p.versionCommand())
	return root
}

func (p *process) devCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run one node for development",
		Long: `Run one node for development, with its data in ./perdure-data. The node prints its
addresses when it is ready, and after that only warnings. Ctrl-C stops it; the next
start continues with the data.`,
		Example: `  node dev
  node dev --data /tmp/try --log-level info
  node dev --grpc-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 --peer-addr 127.0.0.1:0 --gossip-addr 127.0.0.1:0`,
		Args: cobra.NoArgs,
	}
	defaults := map[string]string{"log-level": "warn", "check-invariants": "true", "disk-reserve": "16MiB", "http-nodes": "true",
		"http-networks": "127.0.0.0/8,::1/128"}
	flags := addSettings(cmd, defaults, false)
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err := embed.Load(flags.sources(p.lookup))
		if err != nil {
			return err
		}
		return p.outcome(p.serve(cfg, func(n server, took time.Duration) { p.banner(cfg, n, took) }))
	}
	return cmd
}

// banner prints the addresses and the next step. Scripts may wait for its first line.
func (p *process) banner(cfg embed.Config, n server, took time.Duration) {
	next := "perdure start FUNCTION"
	if n.GRPCAddr() != embed.DefaultConfig().GRPCAddr {
		next += " --addr " + n.GRPCAddr()
	}
	fmt.Fprintf(p.stdout, `perdure %s: ready in %s
  gRPC  %-21s  clients and workers
  HTTP  %-21s  health and metrics
  data  %s
Next: start a worker, then %s
Ctrl-C stops the node; the data stays.
`, version(), took.Round(time.Millisecond), n.GRPCAddr(), n.HTTPAddr(), cfg.DataDir, next)
}

func (p *process) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a cluster member",
		Long: `Run a cluster member. It logs on stderr; SIGINT and SIGTERM stop it in order within
--shutdown-grace, a second signal ends it at once.

A node started without --join is a cluster of one. Three, five or seven nodes create
a cluster together: give each the number (--bootstrap-expect) and the gossip
addresses of others (--join). A restarted node finds its cluster in its data.

Addresses that other machines can reach must be secured: TLS and tokens for clients,
mutual TLS for peers, keys for gossip. The node reloads replaced certificates, tokens
and public keys while it runs.`,
		Example: `  node start --node-id n1 --data /var/lib/perdure
  node start --node-id n1 --bootstrap-expect 3 --join 10.0.0.1:7403,10.0.0.2:7403,10.0.0.3:7403 --config /etc/perdure.yaml
  node start --config /etc/perdure.yaml --log-format json
  PERDURE_DATA=/var/lib/perdure node start`,
		Args: cobra.NoArgs,
	}
	flags := addSettings(cmd, nil, true)
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err := embed.Load(flags.sources(p.lookup))
		if err != nil {
			return err
		}
		return p.outcome(p.serve(cfg, func(server, time.Duration) {}))
	}
	return cmd
}

func (p *process) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  node version",
		Args:    cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			fmt.Fprintf(p.stdout, "perdure node %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

// outcome turns an exit code into what run understands.
func (p *process) outcome(code int) error {
	if code == exitDone {
		return nil
	}
	return stopped(code)
}
