package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"perdure/client"
)

// access holds the global flags for reaching a secured cluster. No flag carries the token itself, because any
// user can list the arguments of processes.
type access struct {
	tls            bool
	tlsGiven       func() bool
	ca, cert, key  string
	tokenFile      string
	plaintextToken bool
}

// addAccessFlags gives the root command the global flags of access.
func (a *app) addAccessFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.BoolVar(&a.access.tls, "tls", false, "use TLS; --tls-ca and --tls-cert imply it ("+client.EnvTLS+")")
	flags.StringVar(&a.access.ca, "tls-ca", "", "`file` of CA certificates, PEM ("+client.EnvTLSCA+")")
	flags.StringVar(&a.access.cert, "tls-cert", "", "`file` of the client certificate, PEM ("+client.EnvTLSClientCert+")")
	flags.StringVar(&a.access.key, "tls-key", "", "`file` of the client key, PEM ("+client.EnvTLSClientKey+")")
	flags.StringVar(&a.access.tokenFile, "token-file", "", "token `file` ("+client.EnvTokenFile+"), or token in "+client.EnvToken)
	flags.BoolVar(&a.access.plaintextToken, "plaintext-token", false, "send the token to other machines without TLS")
	a.access.tlsGiven = func() bool { return flags.Changed("tls") }
}

// options are those of the client, from the environment and the flags; a flag wins.
func (a *app) options() (client.Options, error) {
	opts, err := client.OptionsFromEnv(a.lookup)
	if err != nil {
		return opts, usagef("%v", err)
	}
	given := a.access
	files := client.TLSOptions{}
	if opts.TLS != nil {
		files = *opts.TLS
	}
	for flag, to := range map[*string]*string{&given.ca: &files.CAFile, &given.cert: &files.CertFile, &given.key: &files.KeyFile} {
		if *flag != "" {
			*to = *flag
		}
	}
	switch {
	case given.tlsGiven() && !given.tls:
		if given.ca+given.cert+given.key != "" {
			return opts, usagef("--tls=false, but there are files for TLS")
		}
		opts.TLS = nil
	case given.tls || files != client.TLSOptions{}:
		opts.TLS = &files
	}
	if given.tokenFile != "" {
		opts.Token, opts.TokenFile = "", given.tokenFile
	}
	opts.PlaintextToken = given.plaintextToken
	opts.Logger = slog.New(slog.DiscardHandler) // a command prints its own messages
	return opts, nil
}

// hintUnreached is advice when no node answered: no node is running, or only one side uses TLS.
func (a *app) hintUnreached(cause string) string {
	switch {
	case strings.Contains(cause, "first record does not look like a TLS handshake"):
		return "the node answers without TLS: omit --tls and its files, also " + client.EnvTLS + "*"
	case strings.Contains(cause, "error reading server preface"), strings.Contains(cause, "broken pipe"), strings.Contains(cause, "connection reset by peer"):
		// A node that expects TLS closes the connection at the first plaintext bytes; which error the caller
		// gets is a race.
		return "the node may require TLS (--tls, or --tls-ca FILE for a private CA), or this is no gRPC address"
	}
	return `"node dev" starts a node here; --addr or ` + envAddr + ` names others; ` +
		"a node that waits for its cluster does not listen yet: GET /readyz on its HTTP port says why"
}
