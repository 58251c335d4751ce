// Package draw owns pictures of graphs: SVG with a layout of its own, and DOT for other tools. It promises
// the same picture for the same graph and states, well-formed output whatever the names are, and a picture
// for any graph, even one that graph.Validate refuses. It stores nothing, so a crash loses nothing.
//
// # The layout
//
// Time goes from left to right, or down where that would be wider than a page and going down is narrower. The
// following describes the former. A node is in the column behind the last of its predecessors; a node without
// predecessors is just before the first of its successors. An edge that passes a column occupies a slot
// there, shared by all edges of its source node, so it does not run through boxes. Sweeps to the barycenter
// of the neighbours improve the order within the columns, as long as fewer edges cross. Then boxes move
// towards their neighbours without a change of order. All coordinates are whole pixels.
//
// A graph of more nodes than fit is drawn as one row for each column, or for several columns in a row, with
// a bar of how many nodes are in which state.
//
// # States
//
// A state is a word: pending, running, waiting, completed, failed, skipped, or empty for a picture of the
// graph alone. The box shows it as text, so the picture is readable without colours. Other words are drawn
// without colour.
package draw
