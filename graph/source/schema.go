package source

import _ "embed"

//go:embed schema.json
var schema string

// Schema is the JSON Schema (draft 2020-12) of the file form. It accepts every file that Parse accepts, and
// refuses files of the wrong form. It does not check references between nodes.
func Schema() []byte { return []byte(schema) }
