package source

import _ "embed"

//go:embed schema.json
var schema string

// Schema is the JSON Schema (draft 2020-12) of the file form. It accepts whatever Parse accepts, and refuses
// what has the wrong form; what nodes say about each other it does not see.
func Schema() []byte { return []byte(schema) }
