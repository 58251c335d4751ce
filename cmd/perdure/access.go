package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"perdure/client"
)

// access holds the global flags that say how to reach a cluster that is secured. There is no flag for the
// token itself: whoever lists processes would see it.
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
	flags.BoolVar(&a.access.tls, "tls", false, "secure the connection; --tls-ca and --tls-cert imply it ("+client.EnvTLS+")")
	flags.StringVar(&a.access.ca, "tls-ca", "", "`file` (PEM) of the authorities of the nodes' certificates, instead of the system's ("+client.EnvTLSCA+")")
	flags.StringVar(&a.access.cert, "tls-cert", "", "`file` (PEM) of the certificate to show, where nodes ask for one ("+client.EnvTLSClientCert+")")
	flags.StringVar(&a.access.key, "tls-key", "", "`file` (PEM) of its private key ("+client.EnvTLSClientKey+")")
	flags.StringVar(&a.access.tokenFile, "token-file", "", "`file` that holds the token to show ("+client.EnvTokenFile+"; the token itself: "+client.EnvToken+")")
	flags.BoolVar(&a.access.plaintextToken, "plaintext-token", false, "send the token without TLS even to another machine")
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
	opts.Logger = slog.New(slog.DiscardHandler) // what a command has to say it says itself
	return opts, nil
}

// hintUnreached says what to do when no node answered: is one there at all, and does it speak TLS as this side does?
func (a *app) hintUnreached(cause string) string {
	switch {
	case strings.Contains(cause, "first record does not look like a TLS handshake"):
		return "the node answers without TLS: leave out --tls and the files for it (also " + client.EnvTLS + " and its like)"
	case strings.Contains(cause, "error reading server preface"), strings.Contains(cause, "broken pipe"), strings.Contains(cause, "connection reset by peer"):
		// A node that expects TLS hangs up on the first clear bytes. What the caller sees first depends on the moment.
		return "the node may want TLS, or it is not a gRPC address: --tls secures the connection, --tls-ca FILE if its authority is not one of the system's"
	}
	return `is a node running? "node dev" starts one on this machine; --addr or ` + envAddr + ` names others; ` +
		"one whose cluster is not there yet does not listen: GET /readyz at its HTTP port says what it waits for"
}
