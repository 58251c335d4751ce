// Package graph owns what a submitted graph may look like ([Validate]), what each of its nodes gets
// ([Inputs]) and what a run of it answers ([SinkOutputs]). It promises that a graph which passes Validate
// can be run: its edges are a DAG, every input has a source that ends before the node starts, and every
// number is in bounds. It keeps nothing, so a crash loses nothing.
//
// # What is refused
//
// Validate walks a graph once and lists what is wrong with it, each [Problem] with its place, its rule and a
// sentence. It stops describing after [MaxProblems] and counts the rest. The order of problems depends on
// the graph alone. A subgraph is judged like a graph of its own, with its own bounds; its nodes know nothing
// of the nodes around it. Edges and inputs are two things: an input from a node that does not come before
// this one, directly or through others, is refused rather than made an edge.
//
// # What a node gets
//
// A node with inputs gets a JSON object with one member for each, in the order of their names; a node
// without inputs gets null. Values pass through as they were written, byte for byte apart from white space
// around them: a number is never read as one, so nothing is rounded. What is not there (a skipped node, a
// path that leads nowhere, an empty output) is null. An output that is not JSON, which a function in another
// encoding may well have, becomes a JSON string of its bytes in standard base64 with padding.
//
// # What a run answers
//
// The outputs of its sinks, as one object ([SinkOutputs]). A result of more than [MaxResultBytes] is not made:
// a [*TooLarge] stands for it, and the outputs are read node by node. A node that takes an input from a
// subgraph with such a result gets an error rather than nothing.
//
// # Types
//
// An output may be declared ([perdurev1.GraphNode].Output) and an input may ask for a type. The two are
// compared before anything runs; values are not looked at later. The declared type of a subgraph is an
// object, that of a literal is what it is, the input of the run is undeclared.
package graph
