// Package engine owns the table of bugs in what stands around the rules: stores, snapshot content, channels, leases,
// dispatch, reads, the router, the workers' side. It promises that each named test notices its bug in seconds,
// whatever the timing. It holds tests alone and keeps nothing, so it has nothing to lose.
//
//	go test ./internal/mutation/engine -long -v
//
// plants them all. A new row needs: the file, a snippet that occurs in it once, what stands there instead, the rule
// that is broken, the tests that must fail. See package mutation.
package engine
