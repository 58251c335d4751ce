// Package mutation owns the test of the tests: it plants bugs, one at a time, each of which a named test must
// notice. A dropped, flipped or reordered guard makes a test fail. A row of a table that no longer fits the
// source is reported, not skipped. Only tests use the package; it stores nothing, and never changes a file of
// the repository.
//
// # The tables
//
// Package rules holds the bugs of the rule packages and the machine, package engine those of the code around
// the rules: stores, snapshot content, channels, leases, dispatch, reads, the router, the workers' side. Each
// row names tests that always notice it in seconds; none of them waits for a fault to hit the right moment.
// Planting them all takes minutes, so only the flag -long does it, as .ci/run does:
//
//	go test ./internal/mutation/... -long -v
//
// Without the flag the tests check that every row fits its source.
//
// # How a bug is planted
//
// A row names a file, a snippet that occurs in it exactly once, the replacement, the rule that is broken by
// it, and the tests that must fail. The changed copy of the file is made in a temporary folder and handed to
// the go command with -overlay. Building and linking takes most of the time, so the rows of a package are
// built together: a function that a row changes gets a twin with the change, and chooses by a number in the
// environment (together.go). A row that changes more than one function's body is built by itself, and so are
// all rows of a package that do not build together. When the time of a run (-timeout) is nearly over, the run
// skips the rest of the rows, and -v prints their number.
//
// # When it fails
//
//   - "does not occur": the source has changed; change the row so that it breaks the same rule again.
//   - "does not compile": the row is wrong; a bug that the compiler finds needs no test.
//   - "survived": the named tests pass with the bug in place. Either they lost the check that noticed it, or
//     the row should name others. Add the missing test to the package of the rule, not here.
//
// A row whose tests do not end with its bug counts as noticed, as with go test, and -v prints it: it costs the
// whole time that a row has. Name a test that fails at once. Where hanging is the only way to notice a bug, the
// row's Hangs bounds it.
package mutation
