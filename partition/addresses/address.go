package addresses

import "strings"

// scheme is how the messages of an address travel.
type scheme uint8

const (
	schemeNone scheme = iota // nothing serves it
	schemePoll               // a stream of a client
	schemeHTTP               // a POST
)

// target is an address taken apart. Its parts are compared byte by byte: an address is not percent-decoded.
type target struct {
	scheme scheme
	group  string
	// pid is the process that is meant; "" for any. only: no other process of the group will do.
	pid  string
	only bool
	// host is what an HTTP address has before its path: addresses of one host are retried together.
	host string
}

// parse takes an address apart.
func parse(address string) target {
	if rest, ok := strings.CutPrefix(address, "poll://any@"); ok {
		group, pid, _ := strings.Cut(rest, "/")
		return target{scheme: schemePoll, group: group, pid: pid}
	}
	if rest, ok := strings.CutPrefix(address, "poll://uni@"); ok {
		group, pid, _ := strings.Cut(rest, "/")
		if pid == "" {
			return target{}
		}
		return target{scheme: schemePoll, group: group, pid: pid, only: true}
	}
	for _, prefix := range []string{"http://", "https://"} {
		if rest, ok := strings.CutPrefix(address, prefix); ok {
			host, _, _ := strings.Cut(rest, "/")
			return target{scheme: schemeHTTP, host: host}
		}
	}
	return target{}
}

// group is a group of client processes. Groups of different namespaces are independent.
type group struct{ namespace, name string }

// name is the name of a stream: the process of a group that it leads to.
type name struct {
	group
	pid string
}
