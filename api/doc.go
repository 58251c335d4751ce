// Package api holds the wire types, generated from the .proto files below it, and the one error type
// that crosses every floor. perdure/v1 is public and kept compatible; command/v1 is what servers write
// into their logs and is kept readable for ever. It owns no state and a crash loses nothing: everything
// here is a value.
//
// To change a message, edit the .proto file and run `go generate ./api`. Fields are added, never
// renumbered or reused.
package api

//go:generate go run perdure/internal/protogen
