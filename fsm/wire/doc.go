// Package wire converts the rules' values to the API's and back: outcomes, events and entries of journals,
// promises, tasks' tokens, tags, statuses and errors. Encode… returns the API's form, Decode… reads it.
//
// It promises that encoding and decoding a value returns an equal one. It checks only the form of a value;
// the journal's rules decide whether a journal may hold an event. It holds no state.
package wire
