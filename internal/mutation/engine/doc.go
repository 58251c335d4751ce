// Package engine owns the table of bugs in the code around the rules: stores, snapshot content, channels,
// leases, dispatch, reads, the router, the workers' side. Each named test notices its bug in seconds, at any
// timing. The package has tests only and stores nothing.
//
//	go test ./internal/mutation/engine -long -v
//
// It plants them all. A new row needs: the file, a snippet that occurs in it once, the replacement, the rule
// that is broken, the tests that must fail. See package mutation.
package engine
