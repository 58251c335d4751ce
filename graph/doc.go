// Package graph owns what a submitted graph may look like ([Validate]), what each of its nodes gets
// ([Inputs]) and what a run of it answers ([SinkOutputs]). It promises that a graph which passes Validate can
// be run: its edges are a DAG, every input has a source that ends before the node starts, and every number is
// in bounds. It stores nothing, so a crash loses nothing.
//
// # What is refused
//
// Validate walks a graph once and lists what is wrong with it, each [Problem] with its path, its rule and a
// sentence. It stops describing after [MaxProblems] and counts the rest. The order of problems depends on the
// graph alone. Validate checks a subgraph like a graph of its own, with its own bounds; its nodes do not know
// the nodes around it. Edges and inputs are distinct: an input from a node that does not come before this
// one, directly or through others, is refused rather than made an edge.
//
// # What a node gets
//
// A node with inputs gets a JSON object with one member for each, in the order of their names; a node without
// inputs gets null. Values pass through as they were written, byte for byte apart from white space around
// them: numbers are not parsed, so nothing is rounded. A missing value (a skipped node, a path that leads
// nowhere, an empty output) is null. An output that is not JSON, as a function in another encoding may have,
// becomes a JSON string of its bytes in standard base64 with padding.
//
// # What a run answers
//
// A run answers the outputs of its sinks, as one object ([SinkOutputs]). In place of a result of more than
// [MaxResultBytes] it answers a [*TooLarge], and the caller reads the outputs node by node. A node that takes
// an input from a subgraph with such a result gets an error rather than nothing.
//
// # Types
//
// An output may be declared ([perdurev1.GraphNode].Output) and an input may ask for a type. Validate compares
// the two before anything runs; no value is checked later. The declared type of a subgraph is an object, that
// of a literal is what it is, the input of the run is undeclared.
package graph
