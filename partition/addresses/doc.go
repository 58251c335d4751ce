// Package addresses brings the messages of promises to the addresses that name their receivers: an execute to a worker
// that may take a pending task, an unblock to a listener of a settled promise. It owns the streams of clients at this
// node, the table of all nodes' streams, and the choice of the stream for each message.
//
// An address is one of these:
//
//	poll://any@GROUP        any stream of the group
//	poll://any@GROUP/PID    the stream of the process, else any of the group
//	poll://uni@GROUP/PID    the stream of the process
//	http://…, https://…     Env.Push posts the message
//
// Other addresses have no receiver. Of several streams of one process the newest gets the messages.
//
// A client's stream may be at any node. Each node that has streams keeps a link to every other member (link.go), over
// which it announces its streams, receives messages for them, and reports which unblocks it has written. Each node's
// table (table.go) holds what the links have announced. The leader of a promise's partition chooses, and prefers
// streams of its own node. Gossip has no part in it.
//
// A partition's replica drives the dispatcher so:
//
//	d.Established(lead)          // the leader has read its state
//	d.Applied(lead, effects)     // for each entry, in the order of the log
//	d.Revoked(lead)
//
// The handler of a client's stream drives a Stream so:
//
//	s, err := d.Open(namespace, group, pid)
//	defer s.Close()
//	for {
//		select {
//		case <-s.Ready():
//			for _, m := range s.Take() {
//				s.Written(m, write(m.Message))
//			}
//		case <-s.Done(): // the node drains
//			return
//		}
//	}
//
// The dispatcher sends a message at most once for each effect and each offer. An execute that finds no stream, or a
// full queue, is dropped: the task's retry timer repeats it. An unblock stays in the state until its stream's handler
// has written it: the leader then has the partition delete it. When a stream opens, or a leadership begins, every leader
// offers the stream the pending tasks of its group and the unblocks for its addresses, page by page (offer.go).
//
//	messages queued for a stream <= streamMessages, and streamBytes
//	bytes queued for all streams and links of a node <= nodeBytes
//	unblocks under way of a partition <= maxInFlight
//
// All of it is memory: a crash loses streams, links and queued messages. The state has the tasks and the unblocks, and
// the next leadership and the next stream begin with offers.
package addresses
