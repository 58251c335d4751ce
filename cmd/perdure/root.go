package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"perdure/client"
)

// Environment variables for global flags.
const (
	envAddr      = client.EnvAddr
	envNamespace = client.EnvNamespace
)

// defaultTimeout bounds one request when --timeout does not: long enough for a change of leader, short enough
// to report soon that no node is running.
const defaultTimeout = 10 * time.Second

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "perdure",
		Short: "Control a Perdure cluster",
		Long: `Control a Perdure cluster: start and cancel executions, run graphs, settle
promises, repair replicas, make backups, and check what the cluster stores.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 not found, 4 conflict,
5 unavailable or not finished in time (retry).

Global flags may come before or after the command. start, graph submit, promise create
and task create have a --timeout of their own: before the command it bounds the
request, after it the execution or promise. After verify, --namespace takes several
names.

--codec-command names a program, with arguments between spaces, that decodes payloads
for display and encodes those that a command sends. It runs once and reads a line of
JSON per payload; data is base64, the direction decode or encode:
  {"direction":"decode","data":"…","context":{"namespace":"default","id":"order-42","what":"input"}}
It answers each with {"data":"…"} or {"error":"…"} on one line, within 10s and 16 MiB.

--codec-server names a server instead, as Temporal's tools do: it gets a POST of
  {"payloads":[{"metadata":{"id":"…","what":"…"},"data":"…"}]}
at URL/decode or URL/encode, all values in base64, and answers in the same form.
` + envCodecAuth + ` is the Authorization header for it.`,
		Example: `  perdure start charge --id order-42 --input '{"amount": 5}' --wait
  perdure list --status blocked
  perdure describe order-42 --json`,
		Args:             noSuchCommand,
		RunE:             func(*cobra.Command, []string) error { return usagef("a command is missing") },
		SilenceErrors:    true,
		SilenceUsage:     true,
		TraverseChildren: true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.out)
	root.SetErr(a.stderr)

	global := root.PersistentFlags()
	global.StringSliceVar(&a.addrs, "addr", nil, "`host:port` of nodes (default "+client.DefaultAddr+", or "+envAddr+")")
	global.StringVar(&a.namespace, "namespace", "", "`name` of the namespace ("+envNamespace+"; \""+client.DefaultNamespace+"\" if missing)")
	global.DurationVar(&a.timeout, "timeout", defaultTimeout, "time limit of one request, retries included")
	global.BoolVar(&a.json, "json", false, "print JSON, one object per line")
	a.addAccessFlags(root)
	global.StringVar(&a.codecCommand, "codec-command", "", "`program` that decodes payloads ("+envCodec+")")
	global.StringVar(&a.codecServer, "codec-server", "", "`URL` of a server that decodes payloads ("+envCodecServer+")")

	root.AddCommand(
		a.startCommand(), a.resultCommand(), a.describeCommand(), a.journalCommand(), a.listCommand(),
		a.signalCommand(), a.cancelCommand(), a.terminateCommand(), a.purgeCommand(), a.exportCommand(), a.importCommand(), a.retryCommand(), a.restartCommand(), a.replayCheckCommand(),
		a.promiseCommand(), a.taskCommand(), a.entityCommand(), a.verifyCommand(),
		a.graphCommand(), a.clusterCommand(), a.replicaCommand(), a.backupCommand(), a.tokenCommand(), a.versionCommand(),
	)
	root.InitDefaultCompletionCmd()
	exemplifyCompletion(root)
	return root
}

// noSuchCommand refuses the arguments left when no command was found, and suggests the nearest one.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("%s", message)
}

// exemplifyCompletion gives cobra's own completion commands the example that every command here has.
func exemplifyCompletion(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Example = "  source <(perdure completion bash)"
		for _, shell := range cmd.Commands() {
			shell.Example = "  perdure completion " + shell.Name() + " > perdure." + shell.Name()
		}
	}
}

// do makes a command's function from one that fails with errors of its own: everything else cobra returns
// is bad usage.
func do(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd.Context(), args); err != nil {
			return &commandError{err}
		}
		return nil
	}
}

// commandError marks an error of a command, as opposed to one of its command line.
type commandError struct{ err error }

func (e *commandError) Error() string { return e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

// doClient is do with a client for the global flags.
func (a *app) doClient(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return do(func(ctx context.Context, args []string) error {
		c, err := a.dial()
		if err != nil {
			return err
		}
		err = a.closeCodec(a.decodeError(ctx, f(ctx, c, args)))
		if closeErr := c.Close(); err == nil {
			err = closeErr
		}
		return err
	})
}

func (a *app) dial() (*client.Client, error) {
	if a.timeout <= 0 {
		return nil, usagef("--timeout %v: must be more than 0", a.timeout)
	}
	a.addrs = a.addresses()
	for _, addr := range a.addrs {
		if strings.Contains(addr, "/") {
			continue // a gRPC target with a scheme, such as unix:///run/perdure.sock
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, usagef("--addr %q: not host:port", addr)
		}
	}
	if a.namespace == "" {
		a.namespace, _ = a.lookup(envNamespace)
	}
	if a.namespace == "" {
		a.namespace = client.DefaultNamespace
	}
	if err := a.setCodec(); err != nil {
		return nil, err
	}
	opts, err := a.options()
	if err != nil {
		return nil, err
	}
	opts.Addrs, opts.Namespace, opts.Timeout = a.addrs, a.namespace, a.timeout
	c, err := client.Dial(opts)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return c, nil
}

// addresses are those of --addr, else of the environment, else the default.
func (a *app) addresses() []string {
	given := a.addrs
	if len(given) == 0 {
		text, _ := a.lookup(envAddr)
		given = strings.Split(text, ",")
	}
	var addrs []string
	for _, addr := range given {
		if addr = strings.TrimSpace(addr); addr != "" {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return []string{client.DefaultAddr}
	}
	return addrs
}
