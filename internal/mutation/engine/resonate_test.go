package engine

import "perdure/internal/mutation"

// resonateBugs break how requests of the Resonate protocol are read, and what a node answers that cannot take them yet.
var resonateBugs = []mutation.Bug{
	{
		File: "resonate/members.go", Rule: "resonate: of several fields with one name the last counts",
		From: "for i := len(m) - 1; i >= 0; i-- {", To: "for i := range m {", Tests: "TestMembers",
	},
	{
		File: "resonate/members.go", Rule: "resonate: an escaped quote does not end a string",
		From: "if raw[i] == '\\\\' {\n\t\t\t\t\ti++\n\t\t\t\t}\n", To: "", Tests: "TestMembers",
	},
	{
		File: "resonate/members.go", Rule: "resonate: the escapes of a string are decoded",
		From: "bytes.IndexByte(raw, '\\\\') < 0", To: "bytes.IndexByte(raw, 0) < 0", Tests: "TestMembers",
	},
	{
		File: "rpc/waiting.go", Rule: "resonate: a node without a cluster is not ready, not a server of another protocol",
		From: `mux.HandleFunc("/", func`, To: `mux.HandleFunc("GET /readyz", func`, Tests: "TestNotReadyPaths",
	},
	{
		File: "rpc/waiting.go", Rule: "resonate: a node without a cluster is alive",
		From: `, "GET /health"}`, To: `}`, Tests: "TestNotReadyPaths",
	},
}
