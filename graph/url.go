package graph

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// badURL describes the problem of a call's address, or returns "". It is stricter than RFC 3986: an address
// has a host and no user, since every reader of the graph could read the password.
func badURL(s string) string {
	if s == "" {
		return "the call has no address"
	}
	if len(s) > MaxURLBytes {
		return fmt.Sprintf("the address has %d bytes, at most %d are allowed", len(s), MaxURLBytes)
	}
	if !utf8.ValidString(s) {
		return "the address is not valid UTF-8"
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return "the address does not begin with http:// or https://"
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return fmt.Sprintf("the address has %q", s[i])
		}
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	if why := badAuthority(authority); why != "" {
		return why
	}
	for i := strings.IndexByte(rest, '%'); i >= 0; i = strings.IndexByte(rest, '%') {
		rest = rest[i+1:]
		if len(rest) < 2 || !isHex(rest[0]) || !isHex(rest[1]) {
			return "the address has a '%' without two hexadecimal digits"
		}
	}
	return ""
}

// badAuthority says what is wrong with host and port, or "".
func badAuthority(s string) string {
	if strings.Contains(s, "@") {
		return "the address has a user; send an Authorization header instead"
	}
	var host, port string
	hasPort := false
	if after, ok := strings.CutPrefix(s, "["); ok {
		var tail string
		host, tail, ok = strings.Cut(after, "]")
		if !ok || !isIPv6(host) {
			return "the host in brackets is not an IPv6 address"
		}
		port, hasPort = strings.CutPrefix(tail, ":")
		if tail != "" && !hasPort {
			return "something other than a port comes after the host"
		}
	} else {
		host, port, hasPort = strings.Cut(s, ":")
		if host == "" {
			return "the address has no host"
		}
		for i := range len(host) {
			if !isLetterOrDigit(host[i]) && host[i] < utf8.RuneSelf && strings.IndexByte("-._~", host[i]) < 0 {
				return fmt.Sprintf("the host has %q", host[i])
			}
		}
	}
	if !hasPort {
		return ""
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return fmt.Sprintf("the port %s is not a number", quoted(port))
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Sprintf("the port %s is not between 1 and 65535", quoted(port))
	}
	return ""
}

// isIPv6 says whether s is an IPv6 address in text (RFC 4291, 2.2), without a zone.
func isIPv6(s string) bool {
	groups, gaps := 0, 0
	if strings.HasPrefix(s, "::") {
		gaps, s = 1, s[2:]
	}
	for s != "" {
		if strings.Contains(s, ".") && !strings.Contains(s, ":") {
			return isIPv4(s) && (groups == 6 && gaps == 0 || groups < 6 && gaps == 1)
		}
		group, rest, more := strings.Cut(s, ":")
		if len(group) == 0 || len(group) > 4 {
			return false
		}
		for i := range len(group) {
			if !isHex(group[i]) {
				return false
			}
		}
		groups++
		if more && rest == "" {
			return false // a single colon at the end
		}
		if more && rest[0] == ':' {
			gaps++
			rest = rest[1:]
		}
		s = rest
	}
	return groups == 8 && gaps == 0 || groups < 8 && gaps == 1
}

// isIPv4 says whether s is four numbers up to 255, without leading zeros.
func isIPv4(s string) bool {
	parts := strings.Split(s, ".")
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 10, 8)
		if err != nil || strconv.FormatUint(n, 10) != p {
			return false
		}
	}
	return len(parts) == 4
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
