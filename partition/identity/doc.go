// Package identity owns a node's identity: the file IDENTITY of a data directory, the names of the stores
// next to it, and the stamp that marks each store as this server's.
//
// It replaces an identity durably and atomically. It refuses, with the reason and before any change, a
// directory that is damaged, half made by a single node, another node's, or a replaced server's. A crash
// loses nothing for which Open or File.Update has returned; an interrupted write is there whole or not at
// all.
//
// The node's loop:
//
//	file, creating, err := identity.Open(identity.Options{...}) // reads or decides, and writes
//	// open or make each store with file.Identity().Stamp(name)
//	err = file.Update(func(id *identity.Identity) { id.Ready = true })
package identity
