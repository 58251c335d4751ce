// Package source owns the file form of a graph: YAML, and JSON, which is YAML here. [Parse] accepts only
// graphs that pass graph.Validate, and reports each problem with file and line. [Format] writes a graph in
// its one canonical form, which Parse reads as the same graph. The package stores nothing, so a crash loses
// nothing.
//
// # An example
//
//	name: report
//	maxParallel: 8              # how many nodes may run at once; left out: no bound
//	wave: false                 # true: results are observed when all nodes that run have one
//	nodes:
//	  parse:
//	    function: parse         # a durable function that some worker has registered
//	    inputs:
//	      file: {run: file}     # member "file" of the run's input; {run: true} is all of it
//	      strict: true          # a literal
//	  check:
//	    function: validate
//	    after: [parse]
//	    inputs:
//	      rows: {node: parse, path: rows, type: array}
//	      limits: {value: {node: 1}, path: node}    # a literal that would look like a source
//	    retry: {attempts: 3, initial: 1s, max: 30s, factor: 2}
//	    timeout: 10s            # of one attempt
//	    onFailure: skip         # or propagate, the default
//	    output: object          # any, object, array, string, number or bool
//	  call:
//	    http: {url: "https://example.org/check", method: POST, headers: {X-Team: blue}, sendInputs: true}
//	    after: [check]
//	    inputs:
//	      verdict: {node: check}
//	  approve:
//	    signal: approved        # waits until the run is sent this signal
//	    after: [check]
//	    timeout: 48h            # of the wait
//	  pause:
//	    sleep: 5s
//	    after: [call, approve]
//	  rest:
//	    graph:                  # a subgraph: a run of its own
//	      nodes:
//	        last: {function: tidy}
//	    after: [pause]
//
// # Rules
//
//   - Nodes are a mapping of ids, or a list of nodes that each have an "id".
//   - Every node has exactly one of function, http, signal, sleep and graph. "after" is a list, or one id.
//   - A duration is text as Go writes it (1h30m, 1.5s, 250ms) or a whole number of milliseconds.
//   - An input is a source if it is a mapping with one of node, run and value. Everything else is a literal:
//     text, number, truth value, null, list, or a mapping. Numbers in literals are those of JSON and keep all
//     their digits; dates are text.
//   - Text stays text only if it looks like nothing else: the signal "42" must be quoted.
//   - Parse refuses a duplicate key and names both lines. Anchors and aliases work; tags (other than !!str)
//     and merge keys do not.
//
// # Problems
//
// A problem is shown as
//
//	report.yaml:12: nodes.check.after[0]: there is no node "prase"; did you mean "parse"?
//
// with the line of the wrong value. If a node has a problem of form, Parse omits Validate's problems of that
// node, since they may be consequences. A syntax error has the line at which the YAML reader found it.
//
// [Schema] is the same form as a JSON Schema, for editors. It describes the form of each value, not the
// references between nodes.
package source
