// Package wire turns the rules' values into the API's and back: outcomes, events and entries of journals, promises,
// tasks' tokens, tags, statuses and errors. Encode… gives the API's form, Decode… reads it.
//
// It promises that what is encoded and decoded again is equal. It checks only the form of a value: whether an event
// may stand in a journal is the journal's rule. It holds nothing, so a crash loses nothing.
package wire
