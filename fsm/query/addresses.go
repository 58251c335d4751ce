package query

import (
	"strings"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// UnblockAddresses visits the addresses with a prefix that unblocks wait for, of all namespaces, each once, at most so
// many. Its cost grows with the namespaces and addresses, not with the unblocks of one address.
func UnblockAddresses(r state.Reader, prefix string, most int, visit func(namespace, address string)) (err error) {
	defer state.Catch(&err)
	all := keys.Of(keys.Unblock)
	lower, upper := all, keys.After(all)
	for found := true; found && most > 0; {
		found = false
		state.Must{From: r}.Scan(lower, upper, func(key, _ []byte) bool {
			found = true
			ns, rest, err := keys.CutString(key[len(all):])
			if err != nil {
				state.PanicCorrupt("unblock", key, err)
			}
			address, _, err := keys.CutString(rest)
			if err != nil {
				state.PanicCorrupt("unblock", key, err)
			}
			switch {
			case strings.HasPrefix(address, prefix):
				most--
				visit(ns, address)
				lower = keys.After(keys.Of(keys.Unblock, ns, address))
			case address < prefix:
				lower = keys.Of(keys.Unblock, ns, prefix)
				lower = lower[:len(lower)-2] // without the string's terminator
			default:
				lower = keys.After(keys.Of(keys.Unblock, ns))
			}
			return false
		})
	}
	return nil
}
