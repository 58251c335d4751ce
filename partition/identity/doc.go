// Package identity owns who a node is: the file IDENTITY of a data directory, the names of the stores beside it, and
// the stamp that marks each of them as this server's.
//
// It promises that an identity is replaced durably and whole, and that a directory which is damaged, half made by a
// node alone, another node's, or a replaced server's is refused by name before anything in it changes. A crash loses
// nothing that Open or File.Update has returned for; what they were writing is there whole or not at all.
//
// The node's loop:
//
//	file, creating, err := identity.Open(identity.Options{...}) // reads or decides, and writes
//	// open or make each store with file.Identity().Stamp(name)
//	err = file.Update(func(id *identity.Identity) { id.Ready = true })
package identity
