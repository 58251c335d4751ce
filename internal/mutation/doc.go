// Package mutation owns the test of the tests: a table of bugs, planted one at a time into the rule
// packages, each of which a named test must notice. It promises that a guard which is dropped, flipped or
// put in another order does not go unseen, and that a row of the table which no longer fits the source is
// reported rather than passed over. It holds tests alone, keeps nothing, and never changes a file of the
// repository.
//
// # How a bug is planted
//
// A row names a file, a snippet that occurs in it exactly once, what stands there instead, the rule that
// is broken by it, and the tests that must fail. The changed copy of the file is made in a temporary
// folder and handed to `go test -overlay`, with just the tests that it names. A whole run takes some three
// minutes on two idle cores and adds some 700 MB to the build cache; the next one, with that cache, takes
// a third of the time. When the time of a run (-timeout) is nearly over, the rows that are left are not
// tried, and -v tells how many they are. While neither the rules nor their tests change, `go test` repeats
// the result it has.
//
// # When it fails
//
//   - "does not occur": the source has changed; change the row so that it breaks the same rule again.
//   - "does not compile": the row is wrong; a bug that the compiler finds needs no test.
//   - "survived": the named tests pass with the bug in place. Either they lost what used to notice it, or
//     the row should name others. Add the missing test to the package of the rule, not here.
//   - "hangs": the tests did not come to an end. Where that is the only way to notice a bug, the row says so.
//
// With -short a few rows stand for all; the check that every row still fits its source is made always.
package mutation
