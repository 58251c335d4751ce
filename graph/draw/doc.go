// Package draw owns pictures of graphs: SVG with a layout of its own, and DOT for other tools. It promises
// the same picture for the same graph and states, well-formed output whatever the names are, and a picture
// for any graph, even one that graph.Validate refuses. It keeps nothing, so a crash loses nothing.
//
// # The layout
//
// Time goes from left to right, or down where that would be wider than a page and going down is narrower. What
// follows says it for the former. A node stands in the column behind the last of its predecessors; a node
// without predecessors stands just before the first of its successors. An edge that passes a column keeps a
// place there, shared by all edges of the node it comes from, so it does not run through boxes. Within the
// columns the order is improved by sweeps to the barycenter of the neighbours, as long as fewer edges cross;
// then boxes are moved towards their neighbours without changing the order. All is done in whole pixels.
//
// A graph of more nodes than fit is drawn as one row for each column, or for several columns in a row, with
// a bar of how many nodes are in which state.
//
// # States
//
// A state is a word: pending, running, waiting, completed, failed, skipped, or empty for a picture of the
// graph alone. It is written in the box, so nobody depends on the colours. Other words are drawn without
// colour.
package draw
