// Package commandv1 is what a partition's Raft log holds and what its state machine is asked, generated
// from the .proto file next to it. It owns the messages of entries, commands, replies, queries and of the
// channels between partitions. It promises that what was written stays readable: numbers never change,
// and a machine that meets a kind it does not know stops. It holds values only; a crash loses nothing.
package commandv1
