// Package backup owns backups of a cluster: what a backup consists of, where it is stored, and how it is made, checked
// and deleted. It asks a cluster through Source and a store through Store, and knows neither's network.
//
// A backup is the checkpoints of one cut, one of each partition (package cut). A store holds
//
//	files/SHA256          one file of a checkpoint, or a delta, under the hash of its bytes
//	backups/NAME.json     a manifest: which files make up which partition; written last
//	partial/NAME-ID.json  the plan and the copied files of a create that has not ended
//	partial/collect-ID    unused files are being deleted
//
// A backup has each state as the files of a checkpoint, or as those that an earlier backup has and the deltas since then,
// at most maxDeltas. A delta is what was put and deleted between two checkpoints of a partition; a node that still has the
// earlier one makes it. So the checkpoints of a cut stay on the nodes until the next backup is done. A manifest names all
// objects that its backup needs: no backup depends on another's manifest.
//
// A backup exists if its manifest does. Backups share files: a file that some backup has is not copied again. No file
// is changed after it was written, and every object appears whole or not at all, so a crash at any moment leaves each
// backup as it was. What a crash may leave: files that no manifest names, which Collect deletes, and a partial, which
// the next Create continues.
//
// Create and Collect exclude each other: each announces itself under partial/, then looks for the other. This holds
// in stores where a read that begins after a write has ended sees it.
//
// The caller's loop:
//
//	m, err := backup.Create(ctx, source, store, backup.Options{})
//	problems, err := backup.Verify(ctx, store, m.Name)
//	err = backup.Fetch(ctx, store, m.States[0], dir, nil)
//	err = backup.Delete(ctx, store, m.Name)
//	removed, err := backup.Collect(ctx, store)
package backup
