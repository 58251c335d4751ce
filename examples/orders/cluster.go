package main

import "perdure/client"

// clientOptions are those for the cluster at --addr. TLS and a token, for a cluster that asks for them, and
// the namespace, unless it is given, come from the environment.
func (o options) clientOptions() (client.Options, error) {
	opts, err := client.OptionsFromEnv(nil)
	opts.Addrs = o.addrs
	if o.namespace != "" {
		opts.Namespace = o.namespace
	}
	return opts, err
}
