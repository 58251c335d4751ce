// Package lint owns the laws of this repository that a compiler does not know: which floor may import which,
// what the deterministic floors must not use, and what every package and file must document. `go test
// ./internal/lint` fails on a breach and names the file, the line and the law. Each law has a test with a
// planted breach. The package stores and writes nothing.
//
// # The laws
//
//   - floors: a package imports only packages of a lower floor (floors.go holds the table, with the
//     exceptions and their reasons).
//   - pure: the floors below partition/ use no clock, chance, goroutine, channel, lock, logger, file or
//     floating point, and let no map order out (pure.go).
//   - clock: partition/ and membership/ take time and chance from internal/clock, but for what their libraries read
//     themselves (clock.go).
//   - comments: every package says what it is in at least three lines.
//   - length: no file is longer than 800 lines; a comment `// long file: <reason>` above its first
//     declaration lifts the limit. Tests and generated code are exempt.
//   - marks: no note of unfinished work stays in the tree. Do the work or omit it.
//   - goroutines: the tests of a package that starts goroutines fail if one is left at the end.
//   - sleep: a test waits for a state with a deadline, never for time to pass.
//   - dependencies: every module that go.mod asks for directly is accounted for in ARCHITECTURE.md.
//   - examples: every test that examples/README.md names is where it says.
//
// # Exceptions
//
// An import between packages of one floor, or a use that the pure law forbids, may be right once. Then it is
// listed in the table with its reason, where a reviewer sees it. A range over a map whose order provably
// reaches nothing carries its reason on its own line: `for k := range m { //lint:sorted only counted`. An
// unused exception is a breach too.
package lint
